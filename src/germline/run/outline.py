"""What a run is about and where it stands, in a few words."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from germline.algorithms.protocols import Report
from germline.run import database, stop
from germline.run.cost import Pace, ToGo
from germline.run.stop import Stop, Totals


class State(NamedTuple):
    """`running`, `finished` by a stop rule or `stopped`, and what is to go if that is foreseen."""

    name: str
    finished_by: str | None
    to_go: ToGo | None


def environment_field(settings: Collection[str]) -> str | None:
    """Which of a task's settings names its environment: id or game, None if it has neither."""
    return next((name for name in ("id", "game") if name in settings), None)


def subject(task: Mapping[str, Any]) -> str:
    """What a task is about: its environment or game if it has one, else its own name."""
    return str(task[environment_field([name for name in task if task[name]]) or "name"])


def state(
    folder: Path, rules: Stop, progress: Sequence[tuple[Report, Totals]], totals: Totals
) -> State:
    """Where the run in a folder stands after the generations it has finished."""
    report = progress[-1][0] if progress else None
    if database.busy(folder):
        name, reason = "running", None
    else:
        reason = stop.met(rules, report, totals)
        name = "finished" if reason else "stopped"
    pace = Pace.of(totals for _, totals in progress)
    return State(name, reason, None if reason else pace.to_go(rules, report, totals))
