"""Who does the work: engines that move batches of requests, and the dispatcher above them all.

An engine has the methods of `protocols.Backend` and no cleverness: it may deliver twice and late.
The dispatcher makes of it that each request is answered once.
"""

from germline.backends.dispatch import Dispatcher
from germline.backends.processes import WORKER, Processes
from germline.backends.protocols import Backend, WorkerStatus
from germline.backends.serial import Serial

__all__ = ["WORKER", "Backend", "Dispatcher", "Processes", "Serial", "WorkerStatus"]
