"""Who does the work: engines that move batches of requests, and the dispatcher above them all.

An engine has the methods of `protocols.Backend` and no cleverness: it may deliver twice and late.
The dispatcher makes of it that each request is answered once. In reading order:

    protocols      what an engine must do
    pending        the requests that the dispatcher has not got answered yet
    validate       which answers cannot be one to their request
    audit          evaluations done twice, to find workers that are wrong
    dispatch       the dispatcher
    registry       the engines by name and by address
    serial         the reference engine: this process
    processes      the engine of one machine: a process per core, or one with its accelerator
    worker_handle  one of these processes, as its master sees it
    worker         the program of such a process
    accelerated    how it plays many individuals at once on an accelerator
    wakeup         how a thread that waits at sockets is woken by another
    hosts/         what all engines of many machines share, with the program of `germline worker`
    grpc/          the master serves, hosts hold a stream to it
    celery/        work waits at a broker, RabbitMQ or Redis
    ray/           an actor on every node of a Ray cluster

A request goes from `dispatch` in a batch to an engine's `submit`, from there to a `worker`, which
evaluates it; the answer comes back by the engine's `results`. With many machines a host is between
master and workers: `hosts.relay`, which is itself a master of `processes`.
"""

from germline.backends.dispatch import Dispatcher
from germline.backends.processes import Processes
from germline.backends.protocols import Backend, WorkerStatus
from germline.backends.serial import Serial

__all__ = ["Backend", "Dispatcher", "Processes", "Serial", "WorkerStatus"]
