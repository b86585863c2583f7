"""Makes the page of a result from its run: spec, metrics, curve, champion, film, score, store.

python docs/results/make.py RUN FOLDER [--seed SEED] [--scored FILE]

Everything on the page is read from the run. What follows a heading "Notes" in it is kept.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from germline import paper
from germline.algorithms.protocols import Report
from germline.cli.output.numbers import counted, number
from germline.run import spec as specs
from germline.run import stop
from germline.run.spec import Spec
from germline.run.store import Store
from germline.sweep import figure
from germline.sweep.figure import Line, Mark, Panel
from germline.sweep.folder import History

LINES = {
    "elite": "elite, mean of its episodes",
    "best": "best single episode",
    "mean": "population mean",
}
NOTES = "\n## Notes\n"


def curve(history: History, spec: Spec, title: str) -> str:
    """Scores over frames as an SVG, with what the paper has for the game."""
    frames = [totals.frames for _, totals in history]
    lines = [
        Line(words, frames, [getattr(report, name) for report, _ in history])
        for name, words in LINES.items()
    ]
    panel = Panel("", lines, marks(spec))
    up = "scores of every generation"
    up += "; dotted, the paper's at 1 billion frames" if panel.marks else ""
    return figure.draw(title, [panel], across=_frames(spec), up=up)


def marks(spec: Spec) -> list[Mark]:
    """The paper's values for a game after a billion frames, if it has any."""
    row = paper.TABLE.get(str(spec.task.get("game"))) if spec.task["name"] == "atari" else None
    if row is None:
        return []
    values = {"GA": row.ga_1b, "random search": row.random_search_1b, "ES": row.es_1b}
    return [Mark(f"{name} {value:,}", value) for name, value in values.items()]


def page(store: Store, spec: Spec, champion: str, scored: str, folder: Path) -> str:
    """The README: facts, and the commands to make them again, watch and go on."""
    (report, totals), sessions = store.progress()[-1], store.worked()
    reason = stop.met(spec.stop, report, totals)
    facts = {
        "generations": f"{totals.generations:,}, {f'ended by {reason}' if reason else 'stopped'}",
        _frames(spec): f"{totals.frames:,}",
        "hours": f"{number(totals.seconds / 3600)} in {counted(len(sessions), 'session')}",
        "frames per second": f"{totals.frames / totals.seconds:,.0f}",
        "champion": f"`{report.champion}`, {counted(_genes(store, report.champion), 'gene')}",
        "elite score": f"{number(report.elite)}",
        "arithmetic": spec.arithmetic,
        "digest": _digest(store),
    }
    run, here = f"runs/{spec.name}", f"docs/results/{folder.name}"
    protocol = " --protocol paper" if spec.task["name"] == "atari" else ""
    return "\n".join(
        [
            f"# {folder.name}, seed {spec.seed}",
            "",
            "![Scores over frames](curve.svg) ![The champion plays](champion.gif)",
            "",
            *_table(["", ""], facts.items()),
            "",
            *_table(["session", "begun", "backend", "machine", "versions"], _sessions(sessions)),
            "",
            "The champion over fresh episodes:",
            "",
            *(f"    {line}" for line in scored.splitlines()),
            "",
            "Made with",
            "",
            f"    germline train {here}/spec.toml --out {run}",
            f"    germline eval {here}/{champion}{protocol}",
            f"    python docs/results/make.py {run} {here}",
            "",
            "Watched with",
            "",
            f"    germline play {here}/{champion}",
            "",
            "Gone on with, from the [pruned](../../runs.md#pruned-runs) store:",
            "",
            f"    mkdir -p runs && cp -r {here}/store {run}",
            f"    germline resume {run}{_more(spec, report, totals)}",
            "",
        ]
    )


def main() -> None:
    """Write all files into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", default="0", help="of the film")
    parser.add_argument("--scored", type=Path, help="what germline eval printed, to be quicker")
    given = parser.parse_args()
    run, folder = given.run, given.folder
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "spec.toml", folder / "spec.toml")
    spec = specs.read(run / "spec.toml")
    champion = "champion.safetensors" if spec.algorithm["name"] == "es" else "champion.json"
    _germline("export", "metrics", run, "--out", folder / "metrics.csv", "--force")
    _germline("export", "genome", run, "--out", folder / champion, "--force")
    film = "--seed", given.seed, "--out", folder / "champion.gif", "--force"
    _germline("play", folder / champion, *film)
    protocol = ["--protocol", "paper"] if spec.task["name"] == "atari" else []
    scored = (
        given.scored.read_text()
        if given.scored
        else _germline("eval", folder / champion, *protocol)
    )
    (folder / "eval.txt").write_text(scored)
    _prune(run, folder / "store")
    with Store.open(run) as store:
        (folder / "curve.svg").write_text(curve(store.progress(), spec, folder.name))
        text = page(store, spec, champion, scored, folder.resolve())
    readme = folder / "README.md"
    before = readme.read_text() if readme.exists() else ""
    readme.write_text(text + "".join(before.partition(NOTES)[1:]))


def _germline(*arguments: object) -> str:
    command = [sys.executable, "-m", "germline", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _prune(run: Path, store: Path) -> None:
    """Put the pruned run where one may lie already; that goes when the new one is whole."""
    draft = store.with_name(".store")
    shutil.rmtree(draft, ignore_errors=True)
    _germline("prune", run, "--out", draft)
    shutil.rmtree(store, ignore_errors=True)
    draft.rename(store)


def _table(head: Sequence[str], rows: Any) -> list[str]:  # noqa: ANN401 - rows of text
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _sessions(sessions: Sequence[tuple[float, dict[str, Any]]]) -> list[list[str]]:
    """A row for as many sessions in a row as had the same day, machine and versions."""
    rows, first = [], 1
    described = (
        [
            datetime.fromtimestamp(began, UTC).date().isoformat(),
            str(about["backend"]),
            str(about["kind"]),
            ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        ]
        for began, about in sessions
    )
    for cells, same in groupby(described):
        last = first + len(list(same)) - 1
        rows.append([str(first) if first == last else f"{first} to {last}", *cells])
        first = last + 1
    return rows


def _genes(store: Store, name: str) -> int:
    return len(store.genome(name).genes)


def _digest(store: Store) -> str:
    mark = store.pruned
    if mark is None:
        return f"`{store.digest()}`"
    return f"`{mark.digest}` after {mark.generations:,} generations; pruned since"


def _more(spec: Spec, report: Report, totals: stop.Totals) -> str:
    """Later rules than those that hold: twice as much of what they count, and any score."""
    later = {
        rule.name: "inf" if rule.name == "score" else f"{2 * rule.limit:.15g}"
        for rule in stop.rules(spec.stop, report, totals)
        if rule.value >= rule.limit
    }
    return "".join(f" --set stop.{name}={limit}" for name, limit in later.items())


def _frames(spec: Spec) -> str:
    return "game frames" if spec.task["name"] == "atari" else "frames"


if __name__ == "__main__":
    main()
