"""The master's side of the messages, where hosts take their work from a queue themselves.

`hosts.coordinator` hands every batch to a host. Here the broker does, and hosts say what they took.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from germline.backends.celery.messages import (
    Accepted,
    Declined,
    Dropped,
    FromMaster,
    Left,
    Returned,
    Said,
    Told,
    Took,
)
from germline.backends.celery.outstanding import Outstanding
from germline.backends.hosts.admission import Fault, Rejected, admit, check_proof
from germline.backends.hosts.messages import Beat, Goodbye, Hello, Leaving, Ready, Results, Want
from germline.backends.hosts.roster import MOST_SLOTS, Host, Roster
from germline.messages import Event, Key, Lost, Problem


class QueueCoordinator:
    """Who works, and what becomes of the batches in the queue; `tell` speaks to all hosts.

    A host that is not heard of for `lease` seconds loses its work. `want` is told which blobs
    hosts ask for.
    """

    def __init__(
        self, lease: float, tell: Callable[[FromMaster], None], want: Callable[[str], None]
    ) -> None:
        self.roster = Roster(lease)
        self.outstanding = Outstanding("")
        self._tell = tell
        self._want = want
        self._problem: Problem | None = None
        self._run = ""
        self._lives: dict[str, str] = {}  # of the hosts
        self._doomed: set[str] = set()
        self._strangers: set[str] = set()  # who were told so just now
        self._events: list[Event] = []

    def open(self, problem: Problem, run: str, session: str) -> None:
        """What all of this is about."""
        self._problem, self._run = problem, run
        self.outstanding = Outstanding(session)

    @property
    def heard(self) -> bool:
        """Whether there is anything to be taken."""
        return bool(self._events)

    def taken(self) -> list[Event]:
        """What has come in since it was last asked for."""
        events, self._events = self._events, []
        return events

    def hear(self, said: Said, *, prompt: bool) -> None:
        """What a host says. A `prompt` broker gives out again only what a dead host had taken."""
        if said.worker in self.roster.banned:
            return
        message = said.message
        if isinstance(message, Hello):
            self._hello(said, message)
            return
        host = self.roster.hosts.get(said.worker)
        if host is None or self._lives.get(host.name) != said.life:
            if not isinstance(message, Left) and said.life not in self._strangers:
                self._strangers.add(said.life)  # it was given up, and may begin anew
                self._tell(Told(said.worker, said.life, Goodbye()))
            return
        host.heard = time.monotonic()
        if isinstance(message, Ready):
            self._ready(host, message)
        elif isinstance(message, Leaving):
            host.leaving = True
        elif isinstance(message, Left):
            self.gone(host.name, "left", blamed=False)
        elif isinstance(message, Beat):
            host.slots = min(max(1, message.slots), MOST_SLOTS)
        elif host.ready:
            self._at_work(host, message, prompt=prompt)

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget requests, and tell hosts to."""
        given_up = list(keys)
        for host in self.roster.hosts.values():
            for key in given_up:
                host.take(key)
        if dropped := self.outstanding.drop(given_up):
            self._tell(Dropped(dropped))

    def ban(self, name: str) -> None:
        """Do not hear a host any more."""
        self.roster.banned.add(name)
        self.gone(name, "is in quarantine", blamed=False)

    def gone(self, name: str, reason: str, *, blamed: bool = True) -> None:
        """A host is gone, and what it held is lost."""
        self._lives.pop(name, None)
        self._note(self.roster.leave(name, reason, blamed=blamed))

    def others(self, name: str) -> bool:
        """Whether anybody works but one host."""
        return any(host.name != name for host in self.roster.status())

    def away(self, seconds: float) -> None:
        """Nobody is silent while nobody listens."""
        self.outstanding.put_off(seconds)
        for host in self.roster.hosts.values():
            host.heard += seconds

    def look(self) -> None:
        """Give up hosts that are silent."""
        for host in self.roster.silent():
            self.gone(host.name, "was silent for too long")

    def ask_broker(
        self, dead: Callable[[Sequence[str]], set[str]], queued: Callable[[], int]
    ) -> None:
        """Find who has died and what got lost, by what the broker knows; every second or so.

        `dead` gives which of some lives are over, `queued` how many batches are in the queue.
        """
        self._strangers.clear()
        # Twice, as their last words may be on the way.
        before = self._doomed
        self._doomed = dead(sorted(self._lives.values()))
        for name, life in list(self._lives.items()):
            if life in before & self._doomed:
                self.gone(name, "ended")
        if self.outstanding.waiting():
            self._events += self.outstanding.missing(queued())

    def start_over(self) -> None:
        """The broker was gone, and all that was under way with it."""
        self._events += self.outstanding.all_lost("the broker was gone")
        for host in self.roster.hosts.values():
            host.batches.clear()
            host.places.clear()

    def _hello(self, said: Said, hello: Hello) -> None:
        """Let a host join."""
        try:
            admit(hello)
            if hello.worker != said.worker:
                reason = f"the name in the message, {hello.worker}, is not its sender's"
                raise Rejected(Fault.WORDS, f"{reason}, {said.worker}")
        except Rejected as error:
            self._tell(Told(said.worker, said.life, Goodbye(str(error))))
            return
        if self._lives.get(said.worker) != said.life:
            self.gone(said.worker, "came back", blamed=False)
            self.roster.join(said.worker, hello.slots, hello.appetite)
            self._lives[said.worker] = said.life

    def _ready(self, host: Host, message: Ready) -> None:
        """Let a host work, if it computes as all others do."""
        assert self._problem is not None
        life = self._lives[host.name]
        try:
            check_proof(self._problem, message)
        except Rejected as error:
            self._tell(Told(host.name, life, Goodbye(str(error))))
            self.gone(host.name, "is refused", blamed=False)
            return
        host.ready = True
        self._tell(Told(host.name, life, Accepted()))

    def _at_work(self, host: Host, message: Any, *, prompt: bool) -> None:  # noqa: ANN401 - the rest
        if isinstance(message, Results):
            self._answered(host, message.events)
        elif isinstance(message, Took):
            self.outstanding.took(host, message.tickets)
        elif isinstance(message, Declined):
            self.outstanding.declined(message.ticket)
        elif isinstance(message, Want):
            self._want(message.digest)
        elif isinstance(message, Returned):
            holder = self.roster.hosts.get(self.outstanding.holder(message.ticket) or "")
            # Redis gives out again what takes long; whether the host is dead is seen otherwise.
            if holder is None or prompt:
                self._events += self.outstanding.returned(message.ticket, holder)

    def _answered(self, host: Host, events: Iterable[Event]) -> None:
        """What a host says of requests of this run. Only those that it held can it have lost."""
        ours = [event for event in events if isinstance(event, Lost) or event.key.run == self._run]
        for event in ours:
            if not isinstance(event, Lost) and event.key not in host.places:
                host.give([event.key])
        self._note(host.answered(ours))

    def _note(self, events: Iterable[Event]) -> None:
        self._events += map(self.outstanding.noted, events)
