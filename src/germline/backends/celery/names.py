"""What a run is called at its broker: an exchange, two queues, and the keys of Redis."""

import hashlib
import re
from dataclasses import dataclass

from germline.backends.hosts.messages import NAME

MEETING = "germline"  # the exchange on which masters announce themselves


@dataclass(frozen=True)
class Names:
    """What belongs to a run at the broker. Its own name is part of all of them."""

    run: str

    @property
    def exchange(self) -> str:
        """Where the master speaks to all who work for it."""
        fits = re.fullmatch(NAME, self.run)
        name = self.run if fits else hashlib.sha256(self.run.encode()).hexdigest()[:32]
        return f"{MEETING}.{name}"

    @property
    def work(self) -> str:
        """The queue of batches."""
        return self.exchange

    @property
    def results(self) -> str:
        """The queue of all that hosts say."""
        return f"{self.exchange}.results"

    @property
    def unacked(self) -> dict[str, str]:
        """The keys under which Redis remembers what was taken and not answered."""
        kinds = ("unacked_key", "unacked_index_key", "unacked_mutex_key")
        return {kind: f"{self.exchange}.{kind.removesuffix('_key')}" for kind in kinds}

    def pulse(self, life: str) -> str:
        """The channel of Redis that a host listens to while it lives."""
        return f"{self.exchange}.pulse.{life}"

    def blob(self, digest: str) -> str:
        """The key under which Redis keeps a blob."""
        return f"{self.exchange}.blob.{digest}"
