"""Celery over RabbitMQ or Redis: work waits in a queue of the broker, and hosts take it there.

Master and hosts know only the broker. A run has two queues, one for work and one for all that hosts
say, and an exchange over which the master speaks to all of them; it announces itself on one that
all runs share. They are gone when the run is.
"""

from germline.backends.celery.line import CeleryLine
from germline.backends.celery.master import Celery

__all__ = ["Celery", "CeleryLine"]
