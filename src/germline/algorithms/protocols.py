"""What an algorithm is, and what it reports."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from germline.genome import Genome, PolicyRef
from germline.messages import Key, Request, Result

State = Any
"""A frozen msgspec struct with at least the fields of `progress.Progress`.

Individuals that it remembers are `Genome`s, wherever in it: a pruned run keeps their ancestors.
"""

Blobs = Mapping[str, bytes]


class Report(msgspec.Struct, frozen=True):
    """What a generation came to.

    `best`, `mean` and `median` are over the population's fitness, `elite` is the score of the
    champion, the individual to show and to judge the run by. `steps` and `frames` are all that
    were played, re-evaluations included. Where novelty counts, `novelty` is the population's mean,
    `archive` how many behaviours are remembered, and `reward_weight` how much the return counts.
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
    novelty: float | None = None
    archive: int | None = None
    reward_weight: float | None = None


class Algorithm(Protocol):
    """Settings with pure methods: the same arguments always give the same result.

    A run knows three settings by name, where there are any: `sigma` and `operator` must suit the
    network, and `neighbours` need a task that tells of behaviour.

    An `asynchronous` one has no barrier: the order in which results are told is part of what the
    same means, and it is a `RollingAlgorithm`.
    """

    asynchronous: ClassVar[bool]

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


class RollingAlgorithm(Algorithm, Protocol):
    """One without a barrier. Its states say in `arrived` how many results they were told.

    Results are told in the order in which they arrive, at most up to the next report.
    """

    def ask(self, state: State, count: int | None = None) -> list[Request]:
        """Give re-evaluations that were not yet told, then `count` individuals of the generation.

        Those are any number; if none is given, as many as the next report needs.
        """
        ...

    def individuals(self, state: State, keys: Sequence[Key]) -> list[Genome | None]:
        """Give who was asked for by these keys, None for those that are forgotten."""
        ...
