"""Who works for a master: the hosts, what each holds, and when it was last heard of."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from germline.backends.protocols import WorkerStatus
from germline.messages import Event, Key, Lost

MOST_SLOTS = 4096  # of a host


@dataclass(eq=False)
class Host:
    """A host of `slots` processes; `batches` are the keys that each of its batches has left."""

    name: str
    slots: int
    heard: float
    ready: bool = False
    leaving: bool = False
    done: int = 0
    batches: dict[int, set[Key]] = field(default_factory=dict)
    places: dict[Key, int] = field(default_factory=dict)
    given: int = 0
    appetite: int = 1  # batches that it takes as one

    def give(self, keys: Sequence[Key]) -> None:
        """Note a batch."""
        self.given += 1
        self.batches[self.given] = set(keys)
        self.places.update(dict.fromkeys(keys, self.given))

    def take(self, key: Key) -> bool:
        """Note that a request is answered, or given up; say whether the host held it."""
        place = self.places.pop(key, None)
        if place is None:
            return False
        left = self.batches[place]
        left.discard(key)
        if not left:
            del self.batches[place]
        return True

    def answered(self, events: Iterable[Event]) -> Iterator[Event]:
        """What of a host's answers is about requests that it held, under its own name."""
        for event in events:
            if isinstance(event, Lost):
                keys = tuple(key for key in event.keys if self.take(key))
                if keys:
                    yield msgspec.structs.replace(event, keys=keys)
            elif self.take(event.key):
                self.done += 1
                process = event.worker.rpartition("/")[2][:40]
                yield msgspec.structs.replace(event, worker=f"{self.name}/{process}")

    def lost(self, reason: str, *, blamed: bool = True) -> Iterator[Event]:
        """All that a host held when it went; what it was at may be the cause."""
        for place, keys in enumerate(self.batches.values()):
            at_it = blamed and place < self.slots
            yield Lost(tuple(sorted(keys)), f"worker {self.name} {reason}", blamed=at_it)
        self.batches.clear()
        self.places.clear()


class Roster:
    """The hosts by name. One that is silent for longer than the `lease` is given up."""

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self.hosts: dict[str, Host] = {}
        self.banned: set[str] = set()
        self.known: set[str] = set()  # who was ever here

    def join(self, name: str, slots: int, appetite: int = 1) -> Host:
        """A host, new or back again."""
        self.known.add(name)
        host = self.hosts[name] = Host(name, slots, time.monotonic())
        host.appetite = min(max(1, appetite), MOST_SLOTS)
        return host

    def leave(self, name: str, reason: str, *, blamed: bool = True) -> list[Event]:
        """A host is gone."""
        host = self.hosts.pop(name, None)
        return [] if host is None else list(host.lost(reason, blamed=blamed))

    def silent(self) -> list[Host]:
        """Those not heard of for too long."""
        limit = time.monotonic() - self.lease
        return [host for host in list(self.hosts.values()) if host.heard < limit]

    def status(self) -> list[WorkerStatus]:
        """Those who work."""
        return [
            WorkerStatus(host.name, len(host.places), host.done, host.slots, host.appetite)
            for host in list(self.hosts.values())
            if host.ready and not host.leaving
        ]
