"""Ray: one actor on every node of a cluster, with the processes of that node behind it.

Ray itself runs in a process of its own, the switchboard: it writes to the terminal, takes over
signals and ends its process when a cluster is gone, and the run must not notice.
"""

from importlib.util import find_spec

if find_spec("ray") is None:
    raise ModuleNotFoundError("No module named 'ray'", name="ray")

from germline.backends.ray.master import Ray

__all__ = ["Ray"]
