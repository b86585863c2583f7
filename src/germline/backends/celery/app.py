"""The Celery application of a run: one task, on one queue, in msgpack alone."""

from typing import Any

import celery
import kombu
import msgspec
from kombu import serialization

from germline.address import Address
from germline.backends.celery import messages, transport
from germline.backends.celery.names import Names

TASK = "germline.evaluate"
HEARTBEAT = 10.0  # seconds

serialization.register(
    "germline",
    msgspec.msgpack.encode,
    msgspec.msgpack.decode,
    content_type=messages.TYPE,
    content_encoding="binary",
)


class _App(celery.Celery):  # type: ignore[misc]
    """Celery at one broker, whatever the environment says."""

    address: Address
    names: Names

    def connection_for_read(self, url: Any = None, heartbeat: float = 0, **_: Any) -> Any:  # noqa: ANN401
        return transport.connection(self.address, self.names, heartbeat)

    connection_for_write = connection_for_read


def application(address: Address, names: Names) -> Any:  # noqa: ANN401 - Celery
    """A Celery application for the queue of a run."""
    app = _App(
        "germline", set_as_current=False, loader="celery.loaders.app:AppLoader", fixups=set()
    )
    app.address, app.names = address, names
    app.conf.update(
        accept_content=["germline"],
        task_serializer="germline",
        result_backend="disabled://",
        task_ignore_result=True,
        task_queues=[work_queue(names)],
        task_default_queue=names.work,
        task_create_missing_queues=False,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_detect_quorum_queues=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_heartbeat=HEARTBEAT,
        broker_connection_retry=False,
        broker_connection_retry_on_startup=False,
    )
    return app


def work_queue(names: Names) -> Any:  # noqa: ANN401 - kombu
    """The queue of batches, which only the master makes."""
    return kombu.Queue(names.work, no_declare=True)
