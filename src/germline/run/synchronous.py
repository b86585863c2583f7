"""The session with a barrier: all of a phase are evaluated before any is told."""

from functools import partial

from germline.algorithms.protocols import State
from germline.messages import Failure, Key, Result
from germline.run import replay
from germline.run.session import Ending, Session


class Synchronous(Session):
    """Phase after phase: all of one are evaluated before the next begins."""

    there: dict[Key, Result]  # of the present phase

    def run(self) -> Ending:
        """Ask, dispatch what is missing, keep what comes, tell; and the same again."""
        state, reason = self.restored(), None
        while not self.watching.stopped():
            reason = self.over(state)
            results = None if reason else self._results(state)
            if results is None:
                break
            state, report, _ = self.algorithm.tell(state, results)
            if report is not None:
                self.close(state, report)
        return Ending(reason or self.broke(), state.generation, self.spent)

    def _ended(self) -> bool:
        """Whether it is stopped from outside, or all money is spent."""
        return self.watching.stopped() or self.broke() is not None

    def _results(self, state: State) -> list[Result] | None:
        """All results of a phase, from the store and from the workers; None if stopped."""
        requests = self.algorithm.ask(state)
        there = {r.key: r for r in self.store.results(state.generation, state.phase)}
        if there and all(isinstance(result, Failure) for result in there.values()):
            # Something outside was amiss; if it still is, the same happens again.
            self.store.forget(state.generation, state.phase)
            there = {}
        if there:
            known = self.store.evaluated(state.generation, state.phase)
            asked = [(r.key, known.get(r.key.number), r.genome) for r in requests]
            found = [(key.generation, who, genome) for key, who, genome in asked if who]
            replay.check(self.store.folder, found)
        missing = {r.key: r for r in requests if r.key not in there}
        self.there = there
        if missing:
            self.open()
            self.offer(state)
            for answers in self.dispatcher.run(list(missing.values()), self._ended):
                there.update((answer.key, answer) for answer in answers)
                self.tick(state, len(there), len(requests), answers)
                if answers:
                    pairs = [(missing[answer.key], answer) for answer in answers]
                    self.writes.append(partial(self.store.add, pairs))
                self.keep_up(answers)
        if len(there) < len(requests):
            return None
        return [there[request.key] for request in requests]

    def retract(self, keys: list[Key]) -> None:
        """Take them out of the store too, so that no later session believes them."""
        for key in keys:
            self.there.pop(key, None)
        self.writes.append(partial(self.store.retract, keys))
