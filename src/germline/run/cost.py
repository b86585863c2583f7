"""What a run costs: for a billion frames, and until it is over.

Money is a plain number, in whatever unit the price of a worker's hour is.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from germline.algorithms.protocols import Report
from germline.run.stop import NOTHING, Stop, Totals, left

RECENT = 20.0  # seconds over which a pace is measured
BILLION = 1e9


class ToGo(msgspec.Struct, frozen=True):
    """What is to go until a rule ends the run; where a score may end it sooner, at most that."""

    rule: str
    seconds: float
    cost: float
    at_most: bool


class Pace:
    """Where a run was a moment ago and is now: the last `RECENT` seconds, at least a generation.

    Workers come and go and prices change, so what is to go follows from the recent past.
    """

    def __init__(self, start: Totals = NOTHING) -> None:
        self.recent = deque([start])

    @classmethod
    def of(cls, progress: Iterable[Totals]) -> "Pace":
        """The pace at the end of what a store has."""
        pace = cls()
        for totals in progress:
            pace.add(totals)
        return pace

    @property
    def before(self) -> Totals:
        """Where it was."""
        return self.recent[0]

    @property
    def now(self) -> Totals:
        """Where it is."""
        return self.recent[-1]

    def add(self, totals: Totals) -> None:
        """A generation is complete."""
        self.recent.append(totals)
        while len(self.recent) > 2 and self.recent[1].seconds < totals.seconds - RECENT:
            self.recent.popleft()

    def to_go(self, stop: Stop, report: Report | None, spent: Totals | None = None) -> ToGo | None:
        """What is to go at this pace until the nearest rule holds, if any can be foreseen.

        Within a generation, less what was `spent` since the last one.
        """
        found = left(stop, report, self.before, self.now)
        if found is None:
            return None
        seconds, rule = found
        rate = (self.now.cost - self.before.cost) / (self.now.seconds - self.before.seconds)
        cost = rate * seconds
        if spent is not None:
            seconds -= spent.seconds - self.now.seconds
            cost -= spent.cost - self.now.cost
        return ToGo(rule, max(seconds, 0.0), max(cost, 0.0), stop.score is not None)


def per_billion(totals: Totals) -> float | None:
    """What a billion frames cost, by all that were played; None where nothing was paid."""
    if not totals.frames or not totals.cost:
        return None
    return totals.cost / totals.frames * BILLION
