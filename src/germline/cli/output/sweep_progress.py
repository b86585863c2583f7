"""What is seen of a sweep while it works: a line per run, a panel, JSON lines, or nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from germline.cli.output import is_terminal, progress, say, say_json
from germline.cli.output.numbers import counted, duration, number
from germline.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from germline.sweep import Result
    from germline.sweep.plan import Job


class Screen:
    """What is seen of a sweep while it works: a line per run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = self.runs = 0

    def begin(self, finished: int, runs: int) -> None:
        """How many runs there are."""
        self.done, self.runs = finished, runs
        done = f", {finished:,} finished" if finished else ""
        self.say(f"{self.folder}: {counted(runs, 'run')}{done}")

    def run(self, job: "Job") -> progress.Quiet:
        """How a run is shown."""
        return progress.Quiet(job.folder, job.resolved.spec)

    def ran(self, result: "Result") -> None:
        """What became of a run."""
        where = f"{result.job.cell}/{result.job.folder.name}"
        if result.error is not None:
            self.say(f"{where}: failed")
        elif result.reason is not None and result.totals is not None:
            self.done += 1
            totals = result.totals
            self.say(
                f"{self.done:>{len(str(self.runs))},} of {self.runs:,}  {where}  "
                f"champion {'none' if result.score is None else number(result.score)}  "
                f"{counted(totals.generations, 'generation')}  {totals.frames:,} frames  "
                f"{duration(totals.seconds)}"
            )

    def stop(self, again: str) -> None:
        """Stopped from outside."""
        where = f"{self.folder}: stopped, {self.done:,} of {counted(self.runs, 'run')} finished"
        say(f"{where}, nothing is lost. Go on with: {again}")

    def say(self, text: str) -> None:
        """One line."""
        say(text)


class Silent(Screen):
    """Says how to go on, and nothing else."""

    def say(self, text: str) -> None:
        """Nothing."""


class Json(Screen):
    """One JSON object per line: begin, run, stop."""

    def begin(self, finished: int, runs: int) -> None:
        """Where, and how many."""
        say_json({"event": "begin", "sweep": str(self.folder), "runs": runs, "finished": finished})

    def ran(self, result: "Result") -> None:
        """All numbers of a run."""
        job, totals = result.job, result.totals
        say_json(
            {
                "event": "run",
                "run": str(job.folder),
                "cell": job.cell,
                "seed": job.seed,
                "finished_by": result.reason,
                "score": result.score,
                "totals": totals and totals._asdict(),
                "error": result.error,
            }
        )

    def stop(self, again: str) -> None:
        """Stopped from outside."""
        say_json({"event": "stop", "sweep": str(self.folder), "again": again})


class Live(Screen):
    """The panel of the present run, and a line for each before it."""

    def run(self, job: "Job") -> progress.Quiet:
        """A panel that goes when the run is over."""
        return Panel(job, f"run {self.done + 1:,} of {self.runs:,}")


class Panel(progress.Live):
    """The live display of a run, with its place in the sweep."""

    def __init__(self, job: "Job", place: str) -> None:
        self.place = f"{place} · {job.cell}"  # drawn already while the rest is made
        super().__init__(job.folder, job.resolved.spec)
        self.screen.transient = True

    def panel(self) -> "RenderableType":
        """The same, and the place below."""
        from rich.text import Text

        drawn: Any = super().panel()
        drawn.subtitle, drawn.subtitle_align = Text(printable(self.place)), "left"
        return drawn


def choose(folder: Path, jobs: int, *, json: bool, plain: bool, quiet: bool) -> Screen:
    """The display that was asked for; a panel where there is a terminal and one run at a time."""
    if json:
        return Json(folder)
    if quiet:
        return Silent(folder)
    return Screen(folder) if plain or jobs > 1 or not is_terminal() else Live(folder)
