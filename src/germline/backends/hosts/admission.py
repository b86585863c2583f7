"""Which hosts a master lets in, whichever engine carries their words."""

import re
from enum import Enum

from germline.backends.hosts.messages import NAME, PROTOCOL, Hello, Ready
from germline.backends.hosts.roster import MOST_SLOTS
from germline.errors import shorten
from germline.messages import Problem


class Fault(Enum):
    """What is wrong with a host."""

    TOKEN = "has not shown the token"
    WORDS = "does not keep to the protocol"
    KIND = "is not one that can work here"
    BANNED = "is in quarantine"


class Rejected(Exception):  # noqa: N818 - what happened
    """A host does not keep to the protocol, or may not join."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


def admit(hello: Hello) -> None:
    """Reject a host that speaks another protocol, or cannot be what it says."""
    if hello.protocol != PROTOCOL:
        reason = f"this master speaks version {PROTOCOL} of the protocol, not {hello.protocol}"
        raise Rejected(Fault.KIND, reason)
    if not re.fullmatch(NAME, hello.worker):
        given = shorten(ascii(hello.worker))
        kind = "up to 100 letters, digits, '.', '_', '-', the first a letter or digit"
        raise Rejected(Fault.WORDS, f"the name {given} cannot be: it is {kind}")
    if not 1 <= hello.slots <= MOST_SLOTS:
        reason = f"{hello.slots:,} slots cannot be: a host has from 1 to {MOST_SLOTS:,}"
        raise Rejected(Fault.WORDS, reason)


def check_proof(problem: Problem, ready: Ready) -> None:
    """Reject a host that computes something else in exact arithmetic."""
    if problem.arithmetic != "exact":
        return
    from germline import proof  # which needs JAX; hosts import this module too, and do without

    if ready.proof != proof.wanted(problem.task.name):
        reason = "exact arithmetic: this host computes something else than all others"
        raise Rejected(Fault.KIND, reason)
