"""What is under way: which batches were put into the queue, and who has taken them.

A batch has a ticket, so that word of one that was given out again long ago is not mistaken.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from germline.backends.celery.messages import Task
from germline.backends.hosts.roster import Host
from germline.backends.protocols import host_of
from germline.batches import pack
from germline.messages import Event, Key, Lost, Request, keys_of

MISSING = 5.0  # seconds after which a batch that nobody has, though the queue has not, is lost
AGAIN = 0.1  # seconds until a batch is offered again that another host should have
DECLINED = 30  # times that this is done


@dataclass(eq=False)
class _Given:
    """A batch that was put into the queue: what of it is not answered, and who has taken it."""

    number: int
    keys: set[Key]
    task: Task | None = None  # if there is a host that should not have it
    host: str = ""
    declined: int = 0
    passed: float | None = None  # when it was first seen to be in the queue no more


class Outstanding:
    """Of one `session` of a master."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._given: dict[str, _Given] = {}
        self._tickets: dict[Key, str] = {}
        self._declined: dict[str, float] = {}
        self._number = 0
        self._reached = 0  # batches up to this one are in the queue no more

    def give(self, batch: Sequence[Request], avoid: str) -> Task:
        """Note a batch, and give what is to be put into the queue."""
        self._number += 1
        ticket = f"{self.session}.{self._number}"
        keys = {request.key for request in batch}
        task = Task(ticket, self.session, pack(batch, avoid), host_of(avoid))
        self._given[ticket] = _Given(self._number, keys, task if task.shun else None)
        self._tickets.update(dict.fromkeys(keys, ticket))
        return task

    def took(self, host: Host, tickets: Iterable[str]) -> None:
        """A host has taken batches."""
        for ticket in tickets:
            given = self._given.get(ticket)
            if given is not None:
                given.host = host.name
                host.give(sorted(given.keys))
                self._reached = max(self._reached, given.number)

    def holder(self, ticket: str) -> str | None:
        """Who has taken a batch; empty if nobody, None if it is not under way."""
        given = self._given.get(ticket)
        return None if given is None else given.host

    def returned(self, ticket: str, host: Host | None) -> list[Event]:
        """A batch is in the queue again. If a host was at it, it may be why that died."""
        given = self._given.get(ticket)
        if given is None:
            return []
        keys = tuple(sorted(given.keys))
        blamed = False
        if host is not None:
            busy = list(host.batches)[: host.slots]
            blamed = any(host.places.get(key) in busy for key in keys)
            for key in keys:
                host.take(key)
        reason = f"worker {given.host} let it go" if given.host else "it was let go"
        return [self.noted(Lost(keys, reason, blamed=blamed))]

    def noted(self, event: Event) -> Event:
        """Note an answer."""
        for key in keys_of(event):
            self._forget(key)
        return event

    def drop(self, keys: Iterable[Key]) -> dict[str, tuple[Key, ...]]:
        """Forget requests, and give the batches that they are in."""
        dropped: dict[str, tuple[Key, ...]] = {}
        for key in keys:
            ticket = self._forget(key)
            if ticket is not None:
                dropped[ticket] = (*dropped.get(ticket, ()), key)
        return dropped

    def all_lost(self, reason: str) -> list[Event]:
        """Nothing is under way any more."""
        keys = tuple(sorted(self._tickets))
        self._tickets.clear()
        self._given.clear()
        return [Lost(keys, reason, blamed=False)] if keys else []

    def waiting(self) -> bool:
        """Whether there are batches that nobody has taken."""
        return any(not given.host for given in self._given.values())

    def missing(self, queued: int) -> list[Event]:
        """Batches that are neither in the queue nor with a host: one died while it took them."""
        now = time.monotonic()
        if not queued:
            self._reached = self._number
        lost: list[Event] = []
        for given in self._given.values():
            if not given.host and given.number <= self._reached:
                given.passed = given.passed or now
                if now > given.passed + MISSING:
                    lost.append(Lost(tuple(sorted(given.keys)), "nobody has it", blamed=False))
        return [self.noted(event) for event in lost]

    def declined(self, ticket: str) -> None:
        """A batch was found by the host that should not have it."""
        self._declined[ticket] = time.monotonic()

    def offers(self) -> list[Task]:
        """What is to be put into the queue again, until another host takes it."""
        found = []
        for ticket, when in list(self._declined.items()):
            if time.monotonic() < when + AGAIN:
                continue
            del self._declined[ticket]
            given = self._given.get(ticket)
            if given is not None and given.task is not None:
                given.passed = None
                given.declined += 1
                anyone = given.declined > DECLINED
                found.append(msgspec.structs.replace(given.task, shun="") if anyone else given.task)
        return found

    def put_off(self, seconds: float) -> None:
        """Do not count a time in which nobody listened."""
        for given in self._given.values():
            if given.passed is not None:
                given.passed += seconds

    def _forget(self, key: Key) -> str | None:
        """A request is not under way any more; give the batch it was in."""
        ticket = self._tickets.pop(key, None)
        given = self._given.get(ticket or "")
        if given is not None:
            given.keys.discard(key)
            if not given.keys:
                del self._given[ticket or ""]
        return ticket
