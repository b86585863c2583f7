"""Ray: one actor on every node of a cluster, with the processes of that node behind it.

Ray itself runs in a process of its own, the driver: it writes to the terminal, takes over signals
and ends its process when a cluster is gone, and the run must not notice.

    messages       what master and driver say to each other
    master         the engine: `hosts.coordinator`, whose words the driver carries
    driver_handle  the driver, as the master sees it
    driver         the program that has joined the cluster, and starts an actor on each node
    actor          a host on a node
"""

from importlib.util import find_spec

if find_spec("ray") is None:
    raise ModuleNotFoundError("No module named 'ray'", name="ray")

from germline.backends.protocols import MasterSettings
from germline.backends.ray.master import Ray

__all__ = ["Ray", "make"]


def make(settings: MasterSettings) -> Ray:
    """The engine as a user has asked for it."""
    return Ray(
        settings.address, workers=settings.workers or 0, trust=settings.trust, warn=settings.warn
    )
