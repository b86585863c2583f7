"""A worker with an accelerator: it takes all that comes, and answers as episodes end.

Tasks on the host are played in an arena, tasks on the device in one large batch.
"""

import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import jax

from germline.device import LANES
from germline.errors import InputError, shorten, told
from germline.evaluate import Evaluator
from germline.messages import Event, Failure, Key, Lost, Request, handed_back
from germline.tasks.on_host.arena import Arena
from germline.tasks.on_host.lanes import HostTask
from germline.tasks.on_host.seats import Bout
from germline.tasks.protocols import Outcome


class Accelerated:
    """Evaluates many requests at once. `hands` are the processes that environments run in."""

    def __init__(self, evaluator: Evaluator, hands: int, lanes: int = LANES) -> None:
        self.evaluator = evaluator
        self.hands = hands
        self.lanes = max(1, lanes // 2)  # of either half
        self.arena = self._arena()
        self.waiting: deque[Request] = deque()
        self.requests: dict[Key, Request] = {}
        self.bouts: dict[int, tuple[Key, int]] = {}
        self.outcomes: dict[Key, dict[int, Outcome]] = {}
        self.begun: dict[Key, float] = {}
        self._given = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting or self.requests)

    def add(self, requests: Iterable[Request]) -> list[Event]:
        """Take requests; what cannot be played is answered at once."""
        if self.arena is None:
            self.waiting.extend(requests)
            return []
        failures: list[Event] = []
        for request in requests:
            try:
                context = self.evaluator.context(request.context)
                self.evaluator.decoder.check(request.genome)
            except Exception as error:  # whatever is wrong with one, the others are played
                failures.append(self._failure(request.key, told(error)))
                continue
            self.requests[request.key] = request
            self.outcomes[request.key] = {}
            self.begun[request.key] = time.perf_counter()
            bouts = []
            for place, seed in enumerate(request.episode_seeds):
                self._given += 1
                self.bouts[self._given] = request.key, place
                bouts.append(Bout(self._given, request.genome, context, seed, request.cap))
            self.arena.add(bouts)
        return failures

    def turn(self, wake: Any = None) -> list[Event]:  # noqa: ANN401 - what `wait` takes
        """Go on for a moment, or until somebody rings at `wake`; give what is answered."""
        if self.arena is None:
            return [*self.evaluator.evaluate(self._next())]
        try:
            turn = self.arena.turn(wake)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return self._shrink()
        events: list[Event] = []
        # One that was answered in this turn is not known any more.
        for number, outcome in turn.ended:
            if (bout := self.bouts.pop(number, None)) is not None:
                key, place = bout
                self.outcomes[key][place] = outcome
                events += self._finished(key)
        for number, reason in turn.failed:
            if (bout := self.bouts.pop(number, None)) is not None:
                events.append(self._failure(bout[0], reason))
                self._forget([bout[0]])
        for number, code in turn.lost:
            if (bout := self.bouts.pop(number, None)) is not None:
                reason = f"the process that played it ended with code {code}"
                events.append(Lost((bout[0],), reason))
                self._forget([bout[0]])
        return events

    def cancel(self, keys: Iterable[Key]) -> None:
        """Give requests up."""
        given_up = set(keys)
        self.waiting = deque(r for r in self.waiting if r.key not in given_up)
        self._forget(given_up & set(self.requests))

    def drain(self) -> list[Event]:
        """Give back all requests of which nothing has begun."""
        back = [request.key for request in self.waiting]
        self.waiting.clear()
        if self.arena is not None:
            under_way = self.arena.under_way()
            at_work = {key for number, (key, _) in self.bouts.items() if number in under_way}
            at_work |= {key for key, found in self.outcomes.items() if found}
            idle = [key for key in self.requests if key not in at_work]
            self._forget(idle)
            back += idle
        return [handed_back(tuple(back))] if back else []

    def close(self) -> None:
        """Let go of everything."""
        if self.arena is not None:
            self.arena.close()
        self.evaluator.close()

    def _arena(self) -> Arena | None:
        task, problem = self.evaluator.task, self.evaluator.problem
        if not isinstance(task, HostTask) or problem.siblings:
            return None
        return Arena(
            task,
            self.evaluator.spec,
            self.evaluator.decoder,
            problem.arithmetic,
            hands=self.hands,
            lanes=self.lanes,
            imports=problem.imports,
        )

    def _next(self) -> list[Request]:
        """What is evaluated in one go: all that wait, or one if they are played one by one."""
        at_once = self.evaluator.task.together or self.evaluator.problem.siblings
        count = len(self.waiting) if at_once else min(1, len(self.waiting))
        return [self.waiting.popleft() for _ in range(count)]

    def _finished(self, key: Key) -> list[Event]:
        request, found = self.requests[key], self.outcomes[key]
        if len(found) < len(request.episode_seeds):
            return []
        seconds = time.perf_counter() - self.begun[key]
        outcomes = [found[place] for place in range(len(found))]
        result = self.evaluator.result(request, outcomes, seconds)
        self._forget([key])
        return [result]

    def _forget(self, keys: Iterable[Key]) -> None:
        gone = set(keys)
        for key in gone:
            for kept in (self.requests, self.outcomes, self.begun):
                kept.pop(key, None)
        numbers = [number for number, (key, _) in self.bouts.items() if key in gone]
        for number in numbers:
            del self.bouts[number]
        if self.arena is not None and numbers:
            self.arena.cancel(numbers)

    def _failure(self, key: Key, reason: str) -> Failure:
        return Failure(key, shorten(reason), worker=self.evaluator.worker)

    def _shrink(self) -> list[Event]:
        """Begin again with half as many places: the device has no room for more."""
        assert self.arena is not None
        if self.lanes == 1:
            raise InputError(
                f"the device has no memory for {2 * self.hands} networks at a time; "
                "fewer --workers, or --device cpu, need less"
            )
        requests = list(self.requests.values())
        self._forget(self.requests)
        self.arena.close()
        self.lanes //= 2
        places = 2 * self.hands * self.lanes
        sys.stderr.write(f"germline: the device is out of memory; on with {places} slots\n")
        self.arena = self._arena()
        return self.add(requests)
