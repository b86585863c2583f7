"""What an algorithm is, and what it reports."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from germline.genome import PolicyRef
from germline.messages import Request, Result

State = Any
"""A frozen msgspec struct with at least the fields of `progress.Progress`."""

Blobs = Mapping[str, bytes]


class Report(msgspec.Struct, frozen=True):
    """What a generation came to.

    `best`, `mean` and `median` are over the population's fitness, `elite` is the score of the
    champion, the individual to show and to judge the run by. `steps` and `frames` are all that
    were played, re-evaluations included.
    """

    generation: int
    evaluations: int
    failures: int
    best: float
    mean: float
    median: float
    elite: float
    champion: str
    steps: int
    frames: int
    sigma: float
    cap: int | None
    rank: float | None = None


class Algorithm(Protocol):
    """Settings with pure methods: the same arguments always give the same result."""

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before anything was evaluated; `run` is part of every key."""
        ...

    def ask(self, state: State) -> list[Request]:
        """Give every request of the present phase that was not yet told."""
        ...

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in; a report comes when a generation is complete.

        The blobs are what the next requests refer to.
        """
        ...

    def blobs(self, state: State) -> Blobs:
        """Give the blobs that the requests of a state refer to."""
        ...

    def encode(self, state: State) -> bytes:
        """Write a state."""
        ...

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        ...
