"""What is seen of a run while it works: live, as plain lines, as JSON lines, or nothing."""

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from germline.cli.charts import counted, duration, number, sparkline
from germline.cli.output import console, is_terminal, say, say_json, subject
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from germline.algorithms.protocols import Report
    from germline.run.loop import Ending, Moment
    from germline.run.spec import Spec
    from germline.run.stop import Totals

RECENT = 20.0  # seconds over which a pace is measured
NARROWEST, WIDEST = 50, 120  # columns of the panel


class Display(Protocol):
    """Shows a run; a context manager around the time it works."""

    def __enter__(self) -> "Display": ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """The run begins, or goes on after what is in its history."""

    def tick(self, moment: "Moment") -> None:
        """Something came in."""

    def generation(self, report: "Report", totals: "Totals") -> None:
        """A generation is complete."""

    def end(self, ending: "Ending", advice: str) -> None:
        """The session is over; the advice says what can be done next."""


class Quiet:
    """Shows nothing but how to go on after a signal."""

    def __init__(self, folder: Path, spec: "Spec") -> None:
        self.folder = folder
        self.spec = spec

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """Nothing."""

    def tick(self, moment: "Moment") -> None:
        """Nothing."""

    def generation(self, report: "Report", totals: "Totals") -> None:
        """Nothing."""

    def end(self, ending: "Ending", advice: str) -> None:
        """Nothing, unless there is something to go on with."""
        if ending.reason is None:
            say(self._ending(ending, advice))

    def _ending(self, ending: "Ending", advice: str) -> str:
        if ending.reason is not None:
            return f"{self.folder}: finished by {ending.reason}. {advice}"
        where = f"stopped in generation {ending.generation}"
        return f"{self.folder}: {where}, nothing is lost. {advice}"


class Plain(Quiet):
    """One line per generation, for logs."""

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """What is being run, where."""
        done = f", {counted(len(history), 'generation')} done" if history else ""
        say(f"{self.folder}: {title(self.spec)}{done}")

    def generation(self, report: "Report", totals: "Totals") -> None:
        """The same columns every time."""
        cost = f"  cost {number(totals.cost)}" if self.spec.backend.price else ""
        say(
            f"generation {report.generation:>5,}  best {report.best:>10,.6g}  "
            f"mean {report.mean:>10,.6g}  elite {report.elite:>10,.6g}  "
            f"frames {totals.frames:>13,}  {totals.seconds:>9,.1f} s{cost}"
        )

    def end(self, ending: "Ending", advice: str) -> None:
        """How it ended, and what can be done next."""
        say(self._ending(ending, advice))


class Json(Quiet):
    """One JSON object per line: begin, generation, end."""

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """Where, and what."""
        done = len(history)
        self._write("begin", run=str(self.folder), spec=self.spec, generations=done)

    def generation(self, report: "Report", totals: "Totals") -> None:
        """All numbers of a report, and the totals."""
        import msgspec

        self._write("generation", **msgspec.to_builtins(report), totals=totals._asdict())

    def end(self, ending: "Ending", advice: str) -> None:
        """The rule that ended it, or null."""
        totals = ending.totals._asdict()
        self._write("end", run=str(self.folder), finished_by=ending.reason, totals=totals)

    def _write(self, event: str, **values: Any) -> None:  # noqa: ANN401 - plain data
        say_json({"event": event, **values})


class Live(Quiet):
    """A panel that is drawn again and again in place, at most `WIDEST` columns wide."""

    def __init__(self, folder: Path, spec: "Spec") -> None:
        super().__init__(folder, spec)
        from rich.live import Live as Screen

        self.console = console()
        self.history: list[tuple[Report, Totals]] = []
        self.moment: Moment | None = None
        self.recent: deque[tuple[float, Totals]] = deque()
        self.left: tuple[float, str] | None = None
        self.over = False
        self.screen = Screen(get_renderable=self.panel, console=self.console, refresh_per_second=8)

    def __enter__(self) -> "Live":
        self.screen.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.screen.stop()

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """Show what was reached before."""
        from germline.run.stop import Totals

        self.history = list(history)
        self.recent.append(
            (time.monotonic(), history[-1][1] if history else Totals(0, 0, 0, 0.0, 0.0))
        )

    def tick(self, moment: "Moment") -> None:
        """Seen when the panel is next drawn."""
        self.moment = moment

    def generation(self, report: "Report", totals: "Totals") -> None:
        """Note the pace, too."""
        from germline.run.stop import left

        self.history.append((report, totals))
        if self.moment is not None:
            self.moment = self.moment._replace(frames=0)  # the totals have them now
        now = time.monotonic()
        self.recent.append((now, totals))
        while len(self.recent) > 2 and self.recent[1][0] < now - RECENT:
            self.recent.popleft()
        self.left = left(self.spec.stop, report, self.recent[0][1], totals)

    def end(self, ending: "Ending", advice: str) -> None:
        """Leave the last panel, and say what can be done next."""
        self.__exit__()
        say(self._ending(ending, advice))

    def panel(self) -> "RenderableType":
        """All that is known now."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        width = min(max(self.console.width, NARROWEST), WIDEST)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, width=10)
        grid.add_column(justify="right", no_wrap=True, width=14)
        grid.add_column(no_wrap=True, overflow="ellipsis", width=width - 10 - 14 - 8)
        for row in self._rows(width - 10 - 14 - 8):
            grid.add_row(*row)
        name = Text(printable(title(self.spec)))  # a plain string would be read as markup
        return Panel(grid, title=name, title_align="left", width=width)

    def _rows(self, room: int) -> "list[tuple[RenderableType, ...]]":
        from rich.text import Text

        stop = self.spec.stop
        reports = [report for report, _ in self.history]
        rows: list[tuple[RenderableType, ...]] = []
        limit = f" of {stop.generations:,}" if stop.generations else ""
        rows.append(("generation", f"{len(reports):,}{limit}", self._doing(room)))
        if not reports:
            return [*rows, ("time", duration(self._elapsed()), "the first takes a moment longer")]
        last = reports[-1]
        for name, style in (("best", "green"), ("mean", "blue")):
            line = sparkline([getattr(report, name) for report in reports], room)
            rows.append((name, number(getattr(last, name)), Text(line, style=style)))
        target = "" if stop.score is None else f"target {number(stop.score)}, "
        who = printable(f"{target}champion {last.champion}")
        rows.append(("elite", Text(number(last.elite), style="bold"), who))
        rows.append(("frames", f"{self._frames():,}", f"{self._pace():,.0f} per second"))
        rows.append(("time", duration(self._elapsed()), self._left()))
        if self.spec.backend.price:
            rows.append(("cost", number(self.history[-1][1].cost), ""))
        return rows

    def _doing(self, room: int) -> "RenderableType":
        """Who evaluates what, with a bar."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        moment = self.moment
        if self.over or moment is None:
            return "" if self.over else "starting workers"
        what = "candidates" if moment.phase else "evaluating"
        text = f"{what} {moment.done:,}/{moment.asked:,}, {counted(moment.workers, 'worker')}"
        if room < len(text) + 5:
            return text
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(moment.asked, moment.done, width=room - len(text) - 1), text)
        return line

    def _elapsed(self) -> float:
        """Seconds that the run has been worked on, in all sessions."""
        if not self.recent:
            return 0.0
        then, totals = self.recent[-1]
        return totals.seconds + (0.0 if self.over else time.monotonic() - then)

    def _frames(self) -> int:
        played = 0 if self.moment is None or self.over else self.moment.frames
        return self.recent[-1][1].frames + played

    def _pace(self) -> float:
        first = self.recent[0][1]
        return (self._frames() - first.frames) / max(self._elapsed() - first.seconds, 1e-9)

    def _left(self) -> str:
        if self.over or self.left is None:
            return ""
        seconds, rule = self.left
        since = time.monotonic() - self.recent[-1][0]
        word = "about" if self.spec.stop.score is None else "at most"
        return f"{word} {duration(max(seconds - since, 0.0))} left, by {rule}"


def title(spec: "Spec") -> str:
    """A run in a few words."""
    algorithm = spec.algorithm["name"]
    task = subject(spec.task)
    return f"{spec.name} · {task} · {algorithm} · seed {spec.seed}"


def choose(
    folder: Path, spec: "Spec", *, json: bool, plain: bool, quiet: bool
) -> "Quiet | Plain | Json | Live":
    """The display that was asked for; if none was, live on a terminal and plain elsewhere."""
    if json:
        return Json(folder, spec)
    if quiet:
        return Quiet(folder, spec)
    if plain or not is_terminal():
        return Plain(folder, spec)
    return Live(folder, spec)


def check(*, json: bool, plain: bool, quiet: bool) -> None:
    """Refuse more than one way to show a run."""
    if json + plain + quiet > 1:
        raise InputError("--json, --plain and --quiet: give one of them")
