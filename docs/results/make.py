"""Makes the files of a result from its run: metrics, curve, champion, film.

python docs/results/make.py RUN FOLDER [SEED OF THE FILM]
"""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 36, 16
LINES = {
    "elite": ("#d1495b", "elite, mean of its episodes"),
    "best": ("#9aa5b1", "best single episode"),
    "mean": ("#30638e", "population mean"),
}


def curve(rows: list[dict[str, float]], title: str) -> str:
    """Scores over frames as an SVG."""
    most = max(row["total_frames"] for row in rows)
    top = max(max(row[name] for name in LINES) for row in rows) * 1.05

    def place(frames: float, score: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 12) * frames / most
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (1 - score / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    step = 10 ** (len(str(int(top))) - 1)
    step = step // 2 if top / step < 3 else step
    for score in range(0, int(top) + 1, int(step)):
        x, y = place(0, score)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - 12}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{score:,}</text>')
    for tick in range(6):
        x, y = place(most * tick / 5, 0)
        label = f"{most * tick / 5e6:.0f}"
        parts.append(f'<text x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{label}</text>')
    middle = LEFT + (WIDTH - LEFT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">million frames · {title}</text>'
    )
    for number, (name, (colour, words)) in enumerate(LINES.items()):
        points = [place(row["total_frames"], row[name]) for row in rows]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        y = TOP + 14 * (number + 1)
        parts.append(f'<path d="M{LEFT + 10} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 34}" y="{y}">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write all files into the folder."""
    run, folder = Path(sys.argv[1]), Path(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else "0"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "spec.toml", folder / "spec.toml")
    germline = [sys.executable, "-m", "germline"]
    for command in (
        ["export", "metrics", run, "--out", folder / "metrics.csv"],
        ["export", "genome", run, "--out", folder / "champion.json"],
        ["play", folder / "champion.json", "--seed", seed, "--out", folder / "champion.gif"],
    ):
        subprocess.run([*germline, *map(str, command), "--force"], check=True)
    with (folder / "metrics.csv").open() as stream:
        rows = [
            {k: float(v or "nan") for k, v in row.items() if _is_number(v)}
            for row in csv.DictReader(stream)
        ]
    (folder / "curve.svg").write_text(curve(rows, folder.name))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    main()
