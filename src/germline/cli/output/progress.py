"""What is seen of a run while it works: live, as plain lines, as JSON lines, or nothing."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from germline.cli.output import console, costs, is_terminal, say, say_json
from germline.cli.output.charts import sparkline
from germline.cli.output.numbers import counted, duration, number
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from germline.algorithms.protocols import Report
    from germline.run.cost import ToGo
    from germline.run.loop import Ending, Moment
    from germline.run.spec import Spec
    from germline.run.stop import Totals

NARROWEST, WIDEST = 50, 120  # columns of the panel


class Quiet:
    """Shows nothing but how to go on after a signal; a context manager around the work.

    The others are this one, and show more.
    """

    def __init__(self, folder: Path, spec: "Spec") -> None:
        from germline.run.cost import Pace

        self.folder = folder
        self.spec = spec
        self.pace = Pace()  # of this session, which may have other workers than the last

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """The run begins, or goes on after what is in its history."""

    def tick(self, moment: "Moment") -> None:
        """Something came in."""

    def generation(self, report: "Report", totals: "Totals") -> None:
        """A generation is complete."""

    def end(self, ending: "Ending", advice: str) -> None:
        """The session is over; the advice says what can be done next."""
        if ending.reason is None:
            say(self._ending(ending, advice))

    def _follow(self, history: "list[tuple[Report, Totals]]") -> None:
        """Measure the pace from here on."""
        from germline.run.cost import Pace

        self.pace = Pace(history[-1][1]) if history else Pace()

    def _known(self, report: "Report", totals: "Totals") -> dict[str, Any]:
        """What a billion frames cost, and what is to go, after a generation."""
        self.pace.add(totals)
        return costs.fields(totals, self.pace.to_go(self.spec.stop, report))

    def _ending(self, ending: "Ending", advice: str) -> str:
        if ending.reason is not None:
            return f"{self.folder}: finished by {ending.reason}. {advice}"
        where = f"stopped in generation {ending.generation}"
        return f"{self.folder}: {where}, nothing is lost. {advice}"


class Plain(Quiet):
    """One line per generation, for logs."""

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """What is being run, where."""
        self._follow(history)
        done = f", {counted(len(history), 'generation')} done" if history else ""
        say(f"{self.folder}: {title(self.spec)}{done}")

    def generation(self, report: "Report", totals: "Totals") -> None:
        """The same columns every time."""
        known = self._known(report, totals)
        cost = f"  cost {costs.line(totals.cost, **known)}" if paid(self.spec, totals) else ""
        novel = "" if report.novelty is None else f"novelty {report.novelty:>10,.6g}  "
        say(
            f"generation {report.generation:>5,}  best {report.best:>10,.6g}  "
            f"mean {report.mean:>10,.6g}  elite {report.elite:>10,.6g}  {novel}"
            f"frames {totals.frames:>13,}  {totals.seconds:>9,.1f} s{cost}"
        )

    def end(self, ending: "Ending", advice: str) -> None:
        """How it ended, and what can be done next."""
        say(self._ending(ending, advice))


class Json(Quiet):
    """One JSON object per line: begin, generation, end."""

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """Where, and what."""
        self._follow(history)
        done = len(history)
        self._write("begin", run=str(self.folder), spec=self.spec, generations=done)

    def generation(self, report: "Report", totals: "Totals") -> None:
        """All numbers of a report, the totals, and what is to go."""
        import msgspec

        known = {"totals": totals._asdict(), **self._known(report, totals)}
        self._write("generation", **msgspec.to_builtins(report), **known)

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
        self.seen = time.monotonic()  # when what is known was told
        self.begun: float | None = None  # seconds of the run when this session first told of it
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
        self.history = list(history)
        self.seen = time.monotonic()
        self._follow(history)

    def tick(self, moment: "Moment") -> None:
        """Seen when the panel is next drawn."""
        self.moment, self.seen = moment, time.monotonic()
        self.begun = moment.seconds if self.begun is None else self.begun

    def generation(self, report: "Report", totals: "Totals") -> None:
        """Note the pace, too."""
        self.history.append((report, totals))
        if self.moment is not None:  # the totals have its frames now
            self.moment = self.moment._replace(frames=0, seconds=totals.seconds, cost=totals.cost)
        self.seen = time.monotonic()
        self.pace.add(totals)

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
        if last.novelty is not None:
            rows.append(("novelty", number(last.novelty), f"beside an archive of {last.archive:,}"))
        rows.append(("frames", f"{self._frames():,}", f"{self._pace():,.0f} per second"))
        spent = self.pace.now._replace(seconds=self._elapsed(), cost=self._cost())
        to_go = None if self.over else self.pace.to_go(stop, last, spent)
        rows.append(("time", duration(spent.seconds), _left(to_go)))
        if paid(self.spec, spent):
            known = costs.fields(self.pace.now, to_go)
            rows.append(("cost", number(spent.cost), costs.rest(**known)))
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
        known = self.pace.now.seconds if self.moment is None else self.moment.seconds
        return known + (0.0 if self.over else time.monotonic() - self.seen)

    def _frames(self) -> int:
        played = 0 if self.moment is None or self.over else self.moment.frames
        return self.pace.now.frames + played

    def _cost(self) -> float:
        return self.pace.now.cost if self.moment is None else self.moment.cost

    def _pace(self) -> float:
        """Frames per second; those of a generation that was begun before count when it is done."""
        first = self.pace.before
        since = first.seconds
        if self.begun is not None and first is self.pace.now:
            since = self.begun
        return (self._frames() - first.frames) / max(self._elapsed() - since, 1e-9)


def _left(to_go: "ToGo | None") -> str:
    if to_go is None:
        return ""
    word = "at most" if to_go.at_most else "about"
    return f"{word} {duration(to_go.seconds)} left, by {to_go.rule}"


def paid(spec: "Spec", totals: "Totals") -> bool:
    """Whether a run costs anything, or has."""
    return bool(spec.backend.price or totals.cost)


def title(spec: "Spec") -> str:
    """A run in a few words."""
    from germline.run import outline

    algorithm = spec.algorithm["name"]
    return f"{spec.name} · {outline.subject(spec.task)} · {algorithm} · seed {spec.seed}"


def choose(folder: Path, spec: "Spec", *, json: bool, plain: bool, quiet: bool) -> Quiet:
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
