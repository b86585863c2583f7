"""Many runs that differ in a few settings, side by side: a grid of specs, seeds and environments.

`run` does all of them, or what is left of them, and `Sweep` is what they came to.

The modules in reading order:

    file     the sweep file: what it may say
    plan     which runs there are
    folder   where they are, and how far
    work     those that are left, done
    table    what they come to, a row per cell
    curves   scores over frames
    figure   lines and bands as an SVG
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from germline import api, disk
from germline.errors import InputError
from germline.sweep import curves, file, plan
from germline.sweep import folder as folders
from germline.sweep import table as tables
from germline.sweep.plan import Plan
from germline.sweep.table import Row
from germline.sweep.work import Listener, Result, Show, Unseen, check_jobs, sort, work

__all__ = ["Plan", "Result", "Row", "Sweep", "evolve", "place", "planned", "run"]


class Sweep:
    """A sweep in its folder, finished or not. `trust` allows its specs to import modules."""

    def __init__(self, folder: str | Path, *, trust: bool = False) -> None:
        self.folder = Path(folder)
        self.trust = trust
        self.manifest = folders.read(self.folder)

    @property
    def table(self) -> list[Row]:
        """A row per cell, over the runs that are finished."""
        return tables.rows(self._gathered(), len(self.manifest.seeds))

    @property
    def runs(self) -> dict[str, list[api.Run]]:
        """The runs of every cell that are there, in the order of seeds."""
        return {
            cell.name: [
                api.Run(place, trust=self.trust)
                for seed in self.manifest.seeds
                if ((place := plan.folder_of(self.folder, cell.name, seed)) / "run.db").exists()
            ]
            for cell in self.manifest.cells
        }

    def write(self, include: Collection[str] = ()) -> list[Row]:
        """Write table.csv and figure.svg of what is finished, and give the table.

        The file has a column of costs if `costs` are in `include`.
        """
        gathered = self._gathered()
        rows = tables.rows(gathered, len(self.manifest.seeds))
        drawn = curves.draw(self.manifest.name, gathered, len(self.manifest.seeds))
        disk.save(self.folder / "table.csv", tables.to_csv(rows, include), replace=True)
        disk.save(self.folder / "figure.svg", drawn.encode(), replace=True)
        return rows

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r})"

    def _gathered(self) -> list[tables.Runs]:
        return tables.gather(self.folder, self.manifest)


def run(
    source: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    jobs: int = 1,
    listener: Listener = lambda result: None,
    trust: bool = False,
) -> Sweep:
    """Do all runs of a sweep, or those that are left: a file, a dictionary, or a sweep's folder.

    `changes` are fields of every spec by dotted names, `out` is the folder, sweeps/NAME if not
    given; `jobs` runs are done at once, with a share of the workers each. `listener` is called with
    every `Result`. `trust` allows specs to import modules.
    """
    api.refuse_import("germline.sweep.run")
    folder = place(source, out)
    made = planned(source, changes, trust=trust)
    failed = evolve(folder, made, count=jobs, trust=trust, listener=listener)
    if failed:
        runs = f"{len(failed)} of {len(made.cells) * len(made.seeds)} runs"
        raise InputError(f"{runs} failed; the first: {failed[0].error}")
    return Sweep(folder, trust=trust)


def evolve(
    folder: Path,
    made: Plan,
    *,
    count: int = 1,
    include: Collection[str] = (),
    trust: bool = False,
    begun: Callable[[int, int], None] = lambda finished, runs: None,
    show: Show = lambda job: Unseen(),
    listener: Listener = lambda result: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Do the runs that are not finished, write table and figure, and give those that failed.

    The table has costs if they are in `include`.
    `begun` hears how many of all runs are finished already, `show` gives who is shown a run,
    `listener` hears what became of each. When `stopped` says so, no other is begun.
    """
    jobs = made.jobs(folder)
    check_jobs(jobs, count)
    with folders.held(folder):
        found = sort(jobs)
        folders.write(folder, made)
        begun(len(found.finished), len(jobs))
        for result in found.damaged:
            listener(result)
        failed = found.damaged + work(
            found.waiting,
            count=count,
            trust=trust,
            show=show,
            listener=listener,
            stopped=stopped,
            warn=warn,
        )
        Sweep(folder).write(include)
    return failed


def place(source: str | Path | Mapping[str, Any], out: str | Path | None = None) -> Path:
    """The folder of a sweep: itself, or the one that its file is swept in."""
    if not isinstance(source, Mapping) and Path(source).is_dir():
        if out is not None:
            raise InputError(f"--out: {source} is a folder already; leave out one of them")
        return Path(source)
    given = file.parse(source) if isinstance(source, Mapping) else file.read(Path(source))
    return Path(out) if out is not None else Path("sweeps") / given.name


def planned(
    source: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
) -> Plan:
    """All runs of a sweep, resolved; nothing is written."""
    if isinstance(source, Mapping):
        return plan.made(file.parse(source), Path(), changes, trust=trust)
    path = Path(source)
    if path.is_dir():
        return folders.planned(path, changes, trust=trust)
    given = file.read(path)
    try:
        return plan.made(given, path.parent, changes, trust=trust)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
