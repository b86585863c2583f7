"""An audit of exact runs: some evaluations are done again elsewhere, and must be the same.

In exact arithmetic every machine gives the same numbers. Where two workers do not, the master
plays the episodes itself and says who was wrong.
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

from germline.backends.protocols import host_of
from germline.messages import Evaluation, Key, Request, Result


class Verdict(NamedTuple):
    """What becomes of an answer: it is given, or withheld until another is there.

    `convicted` are hosts that gave something else than the master, and what is to be said of them.
    """

    answer: Result | None
    again: bool = False
    convicted: dict[str, str] = {}  # noqa: RUF012 - never written to


class Audit:
    """Looks at a `share` of evaluations; `referee` is the master's own evaluation of a request."""

    def __init__(self, share: float, referee: Callable[[Request], Result]) -> None:
        self.share = share
        self.referee = referee
        self._endless = False
        self._first: dict[Key, Evaluation] = {}
        self._answered: dict[str, dict[Key, Request]] = {}

    def begin(self, *, endless: bool) -> None:
        """Forget what came before; where it is endless, nothing can be taken back."""
        self._endless = endless
        self._first.clear()
        self._answered.clear()

    def answered_by(self, host: str) -> list[Request]:
        """What a host has answered in this round."""
        return list(self._answered.pop(host, {}).values())

    def hear(self, request: Request, answer: Result, *, elsewhere: bool) -> Verdict:
        """Take an answer in. `elsewhere` says whether there is another worker to ask."""
        first = self._first.pop(request.key, None)
        if not isinstance(answer, Evaluation):
            return Verdict(answer) if first is None else self._given(request, first)
        if first is None:
            if elsewhere and chosen(request.key, self.share):
                self._first[request.key] = answer
                return Verdict(None, again=True)
            return self._given(request, answer)
        if same(first, answer):
            return self._given(request, first)
        truth = self.referee(request)
        if not isinstance(truth, Evaluation):
            return self._given(request, first)  # it cannot be said who is right
        convicted = {
            host_of(wrong.worker): (
                f"worker {wrong.worker}: gave {list(wrong.returns)} to individual "
                f"{request.genome.id} where the master gets {list(truth.returns)}"
            )
            for wrong in (first, answer)
            if not same(wrong, truth)
        }
        return Verdict(truth, convicted=convicted)

    def _given(self, request: Request, answer: Evaluation) -> Verdict:
        if not self._endless:
            self._answered.setdefault(host_of(answer.worker), {})[request.key] = request
        return Verdict(answer)


def chosen(key: Key, share: float) -> bool:
    """Whether a request is looked at twice: the same ones in every session."""
    return zlib.crc32(repr(tuple(key)).encode()) < share * 2**32


def same(one: Evaluation, other: Evaluation) -> bool:
    """Whether two workers agree in everything that a lineage depends on."""
    fields = ("returns", "steps", "frames", "ends", "behaviour", "observation_sums")
    return all(getattr(one, name) == getattr(other, name) for name in fields)
