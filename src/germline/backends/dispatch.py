"""The dispatcher above all engines: every request is answered exactly once.

Engines deliver at least once. Here the first answer per key wins; late, foreign and impossible
ones are dropped; what was lost, or is overdue, is given out again; and a request that keeps losing
workers is put aside as a failure.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from germline.backends.audit import Audit
from germline.backends.pending import Pending, by_family
from germline.backends.protocols import Backend, host_of
from germline.backends.validate import fault
from germline.messages import Evaluation, Failure, Key, Lost, Request, Result

BATCH_SECONDS = 0.5  # long enough to make a message cheap, short enough to lose little
IN_FLIGHT = 2  # batches per slot of a worker
FIRST = 8  # episodes in a batch while it is not known how long they take
LEARNED = 0.2  # by one answer, of how large a batch should be
LARGEST = 4096  # episodes in a batch, so that messages are not endless
ATTEMPTS = 5
STRIKES = 3  # impossible answers from which on a worker is not listened to
PATIENCE = 600.0
MOMENT = 0.2

More = Callable[[int], Sequence[Request]]


class Dispatcher:
    """Hands requests to a backend and gives each one's answer once.

    It learns how long episodes take and sizes batches to `BATCH_SECONDS`. A request is overdue
    after `patience` seconds, twice that at each new attempt, or twenty times what its batch should
    take; after so many `attempts` it is a failure. Where `siblings` share products, a batch has
    at least twice as many episodes, so that a lane that is done can take another. With an `audit`
    some are evaluated twice, and a worker that gives something else is not listened to any more;
    `retract` is told which of its answers are not believed, until there are others. `inputs` is
    how many numbers of an observation are added up.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        attempts: int = ATTEMPTS,
        patience: float = PATIENCE,
        siblings: int = 0,
        audit: Audit | None = None,
        inputs: int | None = None,
        warn: Callable[[str], None] = lambda text: None,
        retract: Callable[[list[Key]], None] = lambda keys: None,
    ) -> None:
        self.backend = backend
        self.siblings = siblings
        self.attempts = attempts
        self.patience = patience
        self.audit = audit
        self.inputs = inputs
        self.warn = warn
        self.retract = retract
        self.quarantined: set[str] = set()
        self._strikes: Counter[str] = Counter()
        self._size = float(FIRST)  # of a batch, in episodes
        self._seconds = 0.0  # an episode takes
        self._slots = 0
        self._hosts = 0
        self._others = 0
        self._looked = -math.inf
        self._checked = 0.0
        self._worked = 0.0  # seconds with somebody there: nobody is late while there is nobody

    def run(
        self,
        requests: Sequence[Request],
        stopped: Callable[[], bool] = lambda: False,
        more: More | None = None,
    ) -> Iterator[list[Result]]:
        """Give answers as they come in, some at a time, until all are there or `stopped`.

        An empty list says that work was handed out, or that all is quiet: time for something else.
        `more` is asked for further requests, as many episodes or more as there is room for, when
        none wait: so without a barrier no worker ever has to.

        What was retracted is answered again.
        """
        # Siblings travel together: the worker then has their parent at hand.
        order = deque(sorted(requests, key=by_family))
        total = math.inf if more else sum(len(request.episode_seeds) for request in requests)
        pending = Pending(total, order)
        if self.audit is not None:
            self.audit.begin(endless=more is not None)
        while not stopped():
            if self._hand_out(pending, more):
                yield []
            if not pending.unfinished():
                return
            yield [*self._answers(pending), *self._overdue(pending)]

    def _hand_out(self, pending: Pending, more: More | None) -> bool:
        """Keep a few batches under way for every worker; say whether there was anything to do."""
        handed = False
        slots = max(1, self._capacity())
        share = math.ceil(min(pending.total / slots, 2**31))
        size = max(1, min(share, max(int(self._size), 2 * self.siblings)))
        # By episodes, and by batches too: while a few large ones are out, none shall wait.
        while (room := IN_FLIGHT * slots * size - pending.episodes) > 0 or len(
            pending.left
        ) < IN_FLIGHT * slots:
            if more is not None and not pending.waiting:
                pending.waiting.extend(sorted(more(max(room, size)), key=by_family))
            batch = pending.batch(size, self.siblings)
            if not batch:
                break
            episodes = sum(len(request.episode_seeds) for request in batch)
            patience = self.patience * 2 ** max(pending.tries.get(r.key, 0) for r in batch)
            pending.give(
                batch, self._worked + max(patience, 20 * episodes * self._seconds), episodes
            )
            self.backend.submit(batch, pending.avoid.get(batch[0].key, ""))
            handed = True
        return handed

    def _capacity(self) -> int:
        """How many batches can be worked on at once, looked at every moment."""
        moment = time.monotonic()
        if moment > self._looked + MOMENT:
            if self._slots:
                self._worked += min(moment - self._looked, 2 * MOMENT)
            workers = self.backend.workers()
            self._slots = sum(worker.slots * worker.appetite for worker in workers)
            self._hosts = len(workers)
            # Of one with an accelerator, all slots are the same process.
            self._others = sum(1 if w.appetite > 1 else w.slots for w in workers)
            self._looked = moment
        return self._slots

    def _answers(self, pending: Pending) -> list[Result]:
        """What the backend has to say, the first word about each request."""
        answers: list[Result] = []
        took: dict[int, list[float]] = {}
        for event in self.backend.results(MOMENT):
            if isinstance(event, Lost):
                answers += self._lost(pending, event)
                continue
            given = pending.take(event.key)
            if given is None:
                continue
            request = given.request
            if host_of(event.worker) in self.quarantined:
                pending.again.append([request])
            elif isinstance(event, Failure):
                answers += self._failed(pending, request, event)
            elif wrong := fault(event, request, self.inputs):
                self._strike(host_of(event.worker), wrong)
                pending.avoid[request.key] = event.worker
                answers += self._again(pending, [request], wrong)
            else:
                seconds = event.seconds / len(event.returns) * given.episodes
                took.setdefault(given.episodes, []).append(seconds)
                answers += self._audited(pending, request, event)
        for episodes, found in took.items():
            self._learn(episodes, sum(found) / len(found), len(found))
        return answers

    def _lost(self, pending: Pending, event: Lost) -> list[Result]:
        """Give out again what was lost; if somebody is to be avoided, alone."""
        lost = [out.request for key in event.keys if (out := pending.take(key))]
        if event.blamed:
            return self._again(pending, lost, event.reason)
        pending.again.extend([r] for r in lost if r.key in pending.avoid)
        pending.waiting.extendleft(r for r in lost if r.key not in pending.avoid)
        return []

    def _failed(self, pending: Pending, request: Request, failure: Failure) -> list[Result]:
        """Ask another host before it is believed that an individual cannot be scored.

        Where a host lacks something, everyone fails there. Processes of one machine are alike.
        """
        if "/" in failure.worker and self._hosts > 1 and request.key not in pending.failed:
            pending.failed[request.key] = failure
            pending.avoid[request.key] = failure.worker
            pending.again.append([request])
            return []
        return self._audited(pending, request, failure)

    def _strike(self, host: str, wrong: str) -> None:
        """Note what a worker did wrong; too often is enough."""
        self._strikes[host] += 1
        self.warn(f"worker {host}: {wrong}")
        if self._strikes[host] >= STRIKES:
            self._quarantine(host)

    def _audited(self, pending: Pending, request: Request, answer: Result) -> list[Result]:
        """The answer, unless another worker is to give it too."""
        if isinstance(answer, Evaluation) and (failure := pending.failed.pop(request.key, None)):
            host = host_of(failure.worker)
            self._strike(host, f"failed where another did not: {failure.reason}")
        if self.audit is None:
            return [answer]
        verdict = self.audit.hear(request, answer, elsewhere=self._others > 1)
        if verdict.again:
            pending.avoid[request.key] = answer.worker
            pending.tries.pop(request.key, None)
            pending.again.append([request])
        for host, found in verdict.convicted.items():
            if host not in self.quarantined:
                self.warn(found)
                self._quarantine(host)
            # What it had answered before is not believed either.
            again = [r for r in self.audit.answered_by(host) if r.key not in pending.out]
            self.retract([r.key for r in again])
            pending.again.extend([r] for r in again)
        return [] if verdict.answer is None else [verdict.answer]

    def _quarantine(self, host: str) -> None:
        self.quarantined.add(host)
        self.warn(f"worker {host}: is in quarantine, and not listened to any more")
        self.backend.ban(host)

    def _learn(self, episodes: int, seconds: float, answers: int) -> None:
        """Aim at batches of `BATCH_SECONDS`, by what the last few answers say.

        By what a batch of this size took, not by what an episode takes: where many are played
        together, one alone costs almost as much as all. Not by one answer alone: a short episode
        among thousands would send out a thousand batches that are too large.
        """
        wanted = episodes * min(4.0, BATCH_SECONDS / max(seconds, 1e-6))
        weight = 1 - (1 - LEARNED) ** answers
        size = self._size * (max(wanted, self._size / 2) / self._size) ** weight
        self._size = min(size, LARGEST)
        self._seconds = seconds / episodes

    def _overdue(self, pending: Pending) -> list[Result]:
        """Give up on workers that do not answer."""
        self._capacity()
        if self._worked < self._checked + MOMENT:
            return []
        self._checked = self._worked
        late = [out.request for out in pending.out.values() if out.due < self._worked]
        if not late:
            return []
        for request in late:
            pending.take(request.key)
        self.backend.cancel([request.key for request in late])
        return [
            failure
            for request in late
            for failure in self._again(pending, [request], "no answer in time")
        ]

    def _again(self, pending: Pending, requests: list[Request], reason: str) -> list[Result]:
        """Try a lost batch again, in halves until the one to blame is alone.

        A request that was alone, and lost, so many times is a failure.
        """
        if not requests:
            return []
        if len(requests) > 1:
            half = len(requests) // 2
            pending.again.extend((requests[:half], requests[half:]))
            return []
        key = requests[0].key
        count = pending.tries[key] = pending.tries.get(key, 0) + 1
        if count >= self.attempts:
            return self._audited(pending, requests[0], Failure(key, reason, count))
        pending.again.append(requests)
        return []
