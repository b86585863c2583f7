"""Numbers that change with the generations."""

from typing import Annotated, Literal

import msgspec

from germline.errors import InputError

Positive = Annotated[float, msgspec.Meta(gt=0, le=65536)]


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `start` to `end` in so many `generations`, then constant."""

    start: Positive
    end: Positive
    generations: Annotated[int, msgspec.Meta(ge=1)]
    shape: Literal["exponential", "linear"] = "exponential"

    def __call__(self, generation: int) -> float:
        """The value in a generation."""
        share = min(generation / self.generations, 1.0)
        if self.shape == "linear":
            return self.start + share * (self.end - self.start)
        return self.start * (self.end / self.start) ** share


def value(schedule: float | Schedule, generation: int) -> float:
    """The value of a number or a schedule in a generation."""
    return schedule(generation) if isinstance(schedule, Schedule) else schedule


def check(name: str, schedule: float | Schedule) -> None:
    """Refuse sizes that no gene can have."""
    from germline import bfloat16

    ends = (schedule.start, schedule.end) if isinstance(schedule, Schedule) else (schedule,)
    for end in ends:
        if end <= 0:
            raise InputError(f"{name}: {end!r} must be above 0")
        bfloat16.scale(end, name)
