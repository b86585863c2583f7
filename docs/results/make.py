"""Makes the files of a result from its run: metrics, curve, champion, film.

python docs/results/make.py RUN FOLDER [SEED OF THE FILM]
"""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

from germline.sweep import figure
from germline.sweep.figure import Line, Panel

LINES = {
    "elite": "elite, mean of its episodes",
    "best": "best single episode",
    "mean": "population mean",
}


def curve(rows: list[dict[str, float]], title: str) -> str:
    """Scores over frames as an SVG."""
    frames = [row["total_frames"] for row in rows]
    lines = [Line(words, frames, [row[name] for row in rows]) for name, words in LINES.items()]
    return figure.draw(title, [Panel("", lines)], across="frames", up="scores of every generation")


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
