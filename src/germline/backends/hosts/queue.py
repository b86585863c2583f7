"""Who gets the next batch: hosts that have room, in turn."""

from collections import deque

from germline.backends.hosts.roster import Host
from germline.backends.protocols import host_of
from germline.batches import Batch, merged
from germline.messages import Key

IN_FLIGHT = 2  # batches per slot: one in work, one waiting


class BatchQueue:
    """Batches that wait, and hosts with room; the first to come is the first to be served."""

    def __init__(self) -> None:
        self.waiting: deque[Batch] = deque()
        self._hungry: dict[Host, None] = {}

    def offer(self, host: Host) -> None:
        """A host may have room."""
        if host.ready and not host.leaving and len(host.batches) < IN_FLIGHT * host.slots:
            self._hungry.setdefault(host)

    def remove(self, host: Host) -> None:
        """A host is not to be given anything more."""
        self._hungry.pop(host, None)

    def next(self, others: bool) -> tuple[Host, Batch] | None:
        """A batch and who is to have it, if there is one for somebody with room.

        `others` says whether there is more than one host to choose from; only then can one be
        avoided. A batch that has to wait for another host does not hold up those behind it.
        """
        for place, batch in enumerate(self.waiting):
            avoided = host_of(batch.avoid) if others else ""
            for host in self._hungry:
                if host.name != avoided:
                    del self.waiting[place]
                    del self._hungry[host]
                    batch = self._larger(host, batch)
                    host.give(batch.keys)
                    self.offer(host)
                    return host, batch
            if not self._hungry:
                return None
        return None

    def _larger(self, host: Host, batch: Batch) -> Batch:
        """A batch with those behind it, as many as the host takes as one."""
        parts = [batch]
        while len(parts) < host.appetite and self.waiting and not self.waiting[0].avoid:
            parts.append(self.waiting.popleft())
        return batch if len(parts) == 1 else merged(parts)

    def cancel(self, keys: set[Key]) -> None:
        """Forget requests that wait."""
        kept = (batch.without(keys) for batch in self.waiting)
        self.waiting = deque(batch for batch in kept if batch.children)
