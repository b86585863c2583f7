"""When a run is over, and how long that may take."""

import math
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from germline.algorithms.protocols import Report
from germline.errors import InputError


class Totals(NamedTuple):
    """What a run has come to so far."""

    generations: int
    frames: int
    steps: int
    seconds: float
    cost: float


NOTHING = Totals(0, 0, 0, 0.0, 0.0)


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a run is over, looked at after every generation; `cost` at every moment.

    `score` is the champion's; `frames` count re-evaluations too; `hours` and `cost` are summed over
    all sessions of the run.
    """

    score: float | None = None
    generations: Annotated[int, msgspec.Meta(ge=1)] | None = None
    frames: Annotated[int, msgspec.Meta(ge=1)] | None = None
    hours: Annotated[float, msgspec.Meta(gt=0)] | None = None
    cost: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.score is not None and math.isnan(self.score):
            raise InputError("score: nan is not a number that can be reached")


class Rule(NamedTuple):
    """A stop rule: what is counted, where it is, and where it ends."""

    name: str
    value: float
    limit: float


def rules(stop: Stop, report: Report | None, totals: Totals) -> Iterator[Rule]:
    """The rules that a run has, and where they are; there is no score before the first report."""
    values = {
        "score": None if report is None else report.elite,
        "generations": totals.generations,
        "frames": totals.frames,
        "hours": totals.seconds / 3600,
        "cost": totals.cost,
    }
    for name, value in values.items():
        limit = getattr(stop, name)
        if limit is not None and value is not None:
            yield Rule(name, value, limit)


def met(stop: Stop, report: Report | None, totals: Totals) -> str | None:
    """The stop rule that holds, in words."""
    return next((_words(rule) for rule in rules(stop, report, totals) if _holds(rule)), None)


def overspent(stop: Stop, totals: Totals) -> str | None:
    """The rule about money in words, if it holds."""
    held = (rule for rule in rules(stop, None, totals) if rule.name == "cost" and _holds(rule))
    return next(map(_words, held), None)


def _holds(rule: Rule) -> bool:
    return rule.value >= rule.limit


def _words(rule: Rule) -> str:
    return f"{rule.name} {rule.value:,.6g} of {rule.limit:,.6g}"


def left(
    stop: Stop, report: Report | None, before: Totals, now: Totals
) -> tuple[float, str] | None:
    """Seconds until the nearest rule holds, and its name, at the pace between two moments.

    When a score is reached cannot be foreseen, so it may be over sooner.
    """
    seconds = now.seconds - before.seconds
    then = {rule.name: rule.value for rule in rules(stop, report, before)}
    found = []
    for name, value, limit in rules(stop, report, now):
        pace = (value - then[name]) / seconds if seconds > 0 else 0.0
        if name != "score" and pace > 0:
            found.append((max(limit - value, 0.0) / pace, name))
    return min(found, default=None)
