"""Celery over RabbitMQ or Redis: work waits in a queue of the broker, and hosts take it there.

Master and hosts know only the broker. A run has two queues, one for work and one for all that hosts
say, and an exchange over which the master speaks to all of them; it announces itself on one that
all runs share. They are gone when the run is.

    names        what a run is called at the broker
    messages     what travels there besides `hosts.messages`
    signing      messages as bytes that only those with the token can write
    transport    how RabbitMQ and Redis are reached
    broker       one connection: queues, exchanges, and where the two brokers differ
    app          the Celery application, with its single task
    outstanding  the master's book of batches: in the queue, or taken by whom
    coordinator  the master's side of the messages
    blobs        how blobs come to hosts
    master       the engine: it puts batches into the queue and hears of them
    listener     what a host hears from the master
    worker       the Celery worker in a host, which takes batches from the queue
    unacked      the batches that it has taken and not acknowledged
    connection   a host's end: listener, worker and answers together
"""

from germline.backends.celery.connection import CeleryConnection
from germline.backends.celery.master import Celery
from germline.backends.protocols import HostSettings, MasterSettings

__all__ = ["Celery", "CeleryConnection", "connect", "make"]


def make(settings: MasterSettings) -> Celery:
    """The engine as a user has asked for it."""
    place = settings.address
    assert place is not None
    if not place.loopback and not place.password:
        settings.warn(
            f"{place.redacted}: has no password, and whoever reaches it could change results"
        )
    return Celery(
        place,
        token=settings.token,
        workers=settings.workers or 0,
        device=settings.device,
        trust=settings.trust,
    )


def connect(settings: HostSettings) -> CeleryConnection:
    """A host's connection to the broker."""
    return CeleryConnection(
        settings.address,
        settings.name,
        settings.processes,
        appetite=settings.appetite,
        token=settings.token,
    )
