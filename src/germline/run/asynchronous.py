"""The session without a barrier: no worker waits, and every arrival is told and logged at once."""

import math
from collections import deque
from functools import partial
from typing import Any

from germline.algorithms.progress import RuinError
from germline.algorithms.protocols import State
from germline.backends.dispatch import IN_FLIGHT
from germline.messages import Key, Request, Result
from germline.run import replay
from germline.run.session import Ending, Session


class Asynchronous(Session):
    """Keeps about one population under way, of the generation that is the present one.

    What was under way when a session ended is given up: the lineage depends on arrivals alone.
    """

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as for every session
        super().__init__(*given)
        self.state: State = self.restored()
        self.out: dict[Key, Request] = {}
        self.waiting: deque[Request] = deque()
        self.reason: str | None = None

    def run(self) -> Ending:
        """Tell again what arrived before, then ask for more and more."""
        self._tell_again()
        if not self._ended():
            self.open()
            for answers in self.dispatcher.run([], self._ended, self._more):
                for answer in answers:
                    self._arrived(answer)
                self.tick(self.state, len(self.state.window), self.algorithm.population, answers)
                self.keep_up(answers)
        return Ending(self.reason, self.state.generation, self.spent)

    def _ended(self) -> bool:
        """Whether it is stopped from outside, or a rule holds."""
        if self.reason is None and not self.watching.stopped():
            self.reason = self.over(self.state)
            return self.reason is not None
        return True

    def _tell_again(self) -> None:
        """Go on from the last arrival in the log."""
        try:
            for state, report in replay.rolled(self.store, self.algorithm, self.state):
                self.state = state
                if report is not None:
                    self.close(state, report)
        except RuinError:
            # Something outside was amiss; if it still is, the same happens again.
            self.store.forget_arrivals(self.state.arrived)

    def _more(self, room: int) -> list[Request]:
        """Requests of about `room` episodes, so few that all workers have some of a population."""
        slots = IN_FLIGHT * max(1, sum(worker.slots for worker in self.backend.workers()))
        part = math.ceil(self.algorithm.population / slots)
        found: list[Request] = []
        while room > 0 and len(found) < part and len(self.out) < part * slots:
            request = self._next()
            self.out[request.key] = request
            found.append(request)
            room -= len(request.episode_seeds)
        return found

    def _next(self) -> Request:
        """The next request of the present generation that is not under way."""
        if not self.waiting:
            self.offer(self.state)
            count = len(self.out) + self.algorithm.population
            asked = self.algorithm.ask(self.state, count)
            self.waiting.extend(request for request in asked if request.key not in self.out)
        return self.waiting.popleft()

    def _arrived(self, answer: Result) -> None:
        """Log an answer and tell it; the first one counts, and none after the end."""
        request = self.out.pop(answer.key, None)
        if request is None or self.reason is not None:
            return
        self.writes.append(partial(self.store.add, [(request, answer)], self.state.arrived))
        self.state, report, _ = self.algorithm.tell(self.state, [answer])
        if report is not None:
            self.waiting.clear()
            self.close(self.state, report)
            self.reason = self.over(self.state)
