"""A Celery worker inside a host, which takes batches from the queue of a run.

It runs in a thread of its own. It accepts nothing but msgpack, knows a single task, has no remote
control, and acknowledges a message only when it is told so.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery.bootsteps import RUN
from celery.concurrency.thread import TaskPool
from celery.exceptions import Reject, WorkerShutdown
from celery.worker.consumer import Consumer
from kombu.asynchronous import set_event_loop

from germline.address import Address
from germline.backends.celery import messages
from germline.backends.celery.app import TASK, application
from germline.backends.celery.names import Names

PATIENCE = 10.0  # seconds for a worker to end

Take = Callable[[bytes, bool], bool]


class _Careful(Consumer):  # type: ignore[misc]
    """Drops whatever in the queue is not a batch; Celery itself would stumble over some of it."""

    def create_task_handler(self, *given: Any, **named: Any) -> Callable[[Any], None]:  # noqa: ANN401
        handle = super().create_task_handler(*given, **named)

        def received(message: Any) -> None:  # noqa: ANN401 - kombu
            if _is_task(message):
                handle(message)
            else:
                message.reject_log_error(_Silent, self.connection_errors)

        return received


class _Threads(TaskPool):  # type: ignore[misc]
    """Threads that know which application they work for."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self.executor = ThreadPoolExecutor(self.limit, initializer=self.app.set_current)


class _Silent:
    """A logger that says nothing."""

    @staticmethod
    def critical(*_: object, **__: object) -> None:
        pass


def _is_task(message: Any) -> bool:  # noqa: ANN401 - kombu
    headers = message.headers
    if message.content_type != messages.TYPE or len(message.body) > messages.FROM_MASTER:
        return False
    if not isinstance(headers, dict) or headers.get("task") != TASK:
        return False
    if not isinstance(headers.get("id"), str) or headers.get("eta") or headers.get("expires"):
        return False
    try:
        arguments, named, further = message.payload
    except Exception:  # of any kind, as anyone may have written it
        return False
    return (
        isinstance(arguments, list)
        and [type(argument) for argument in arguments] == [bytes]
        and named == {}
        and isinstance(further, dict)
        and not any(further.values())
    )


class CeleryWorker:
    """Calls `take` with what is found in the queue and whether it was there before, in threads.

    At most `count` calls are under way. One that gives True acknowledges the message, otherwise it
    goes back to the queue. `ended` is called when the worker has ended, for whatever reason.
    """

    _making = threading.Lock()

    def __init__(
        self, address: Address, names: Names, count: int, take: Take, ended: Callable[[], None]
    ) -> None:
        self._queue = names.work
        self._ended = ended
        app = application(address, names)

        def evaluate(task: Any, payload: bytes) -> None:  # noqa: ANN401 - Celery
            if not take(payload, bool(task.request.delivery_info.get("redelivered"))):
                raise Reject("not answered", requeue=True)

        app.task(evaluate, name=TASK, bind=True, shared=False, acks_late=True)
        for name in set(app.tasks) - {TASK}:
            del app.tasks[name]
        with self._making:
            set_event_loop(None)  # so that each worker of a process has its own
            self._worker = app.WorkController(
                hostname="germline",
                queues=[names.work],
                pool=_Threads,
                concurrency=count,
                consumer_cls=_Careful,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
            )
        self.alive = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Take no more."""
        self._worker.hub.call_soon(self._pause)

    def close(self) -> None:
        """End; all calls must have been answered."""
        self.alive = False
        self._worker.hub.call_soon(self._end)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            if self.alive:
                self._worker.start()
        finally:
            self.alive = False
            self._ended()

    def _pause(self) -> None:
        if self._worker.blueprint.state == RUN:
            self._worker.consumer.cancel_task_queue(self._queue)

    def _end(self) -> None:
        if self._worker.blueprint.state == RUN:
            raise WorkerShutdown(0)
