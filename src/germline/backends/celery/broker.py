"""A connection to a broker, the queues of a run, and how RabbitMQ and Redis differ in them.

Whatever goes wrong with a connection is `Gone`; its text holds no credentials.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import kombu
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import ResponseError

from germline.address import HIDDEN, Address
from germline.backends.celery.messages import TYPE
from germline.backends.celery.names import MEETING, Names
from germline.backends.celery.transport import connection, is_redis
from germline.errors import shorten

EXPIRES = 3600.0  # seconds after which the broker removes what nobody uses any more
STALE = 60.0  # seconds after which nobody needs to hear what was said to all


class Gone(Exception):  # noqa: N818 - what happened, no fault
    """The broker cannot be reached, for now."""


class Broker:
    """A connection with one channel, for one thread."""

    def __init__(self, address: Address, heartbeat: float = 0) -> None:
        self.redis = is_redis(address)
        self._address = address
        self._pulse: Any = None
        self._connection = connection(address, heartbeat=heartbeat)
        self._errors = (
            *self._connection.connection_errors,
            *self._connection.channel_errors,
            KombuError,
            OperationalError,
            OSError,
            AttributeError,  # of py-amqp, when its socket is gone
        )
        with self._reached():
            self._connection.ensure_connection(
                max_retries=1, interval_start=0, interval_step=0, reraise_as_library_errors=False
            )
            self._channel = self._connection.channel()
            self.producer = kombu.Producer(self._channel, auto_declare=False)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise Gone(self._explain(error)) from None

    def _explain(self, error: BaseException) -> str:
        text = shorten(str(error) or type(error).__name__)
        secret = self._address.password
        return text.replace(secret, HIDDEN) if secret else text

    def publish(self, body: bytes, *, queue: str = "", exchange: str = "") -> None:
        """Send to a queue, or over an exchange to all that listen."""
        with self._reached():
            self.producer.publish(
                body,
                exchange=exchange,
                routing_key=queue,
                content_type=TYPE,
                content_encoding="binary",
                delivery_mode=1,
                retry=False,
                expiration=STALE if exchange and not self.redis else None,
            )

    def send(self, app: Any, task: str, payload: bytes, queue: Any) -> None:  # noqa: ANN401 - Celery
        """Send a Celery task."""
        with self._reached():
            app.send_task(
                task,
                args=[payload],
                queue=queue,
                declare=[],
                producer=self.producer,
                ignore_result=True,
                delivery_mode=1,
                retry=False,
                argsrepr="",
                kwargsrepr="",
            )

    def drain(self, timeout: float) -> bool:
        """Wait for a message, which is given to whoever consumes it; say whether one came."""
        with self._reached():
            try:
                self._connection.drain_events(timeout=timeout)
            except TimeoutError:
                return False
            except (ValueError, TypeError, LookupError):
                if not self.redis:
                    raise
                return False  # Redis keeps whatever anyone writes, and kombu trusts it
            return True

    def beat(self) -> None:
        """Let the broker know that this end lives; to be called every second."""
        with self._reached():
            self._connection.heartbeat_check()

    def listen(self, exchange: str, name: str, hear: Callable[[Any], None]) -> None:
        """Hear what is said to all over an exchange, by a queue that goes with this connection."""
        with self._reached():
            queue = kombu.Queue(name, _fanout(exchange), exclusive=True, auto_delete=True)
            # With a channel of its own: kombu does not subscribe to a second one later.
            _consume(self._connection.channel(), queue, hear)
            if self.redis:  # where its name is kept for nothing
                for kind in ("binding", "binding_permanent"):
                    self._client.delete(f"_kombu.{kind}.{exchange}")

    def make(self, names: Names, hear: Callable[[Any], None]) -> None:
        """Make the queues of a run, empty, and consume its results."""
        anchor = f"{names.exchange}.{secrets.token_hex(4)}"
        with self._reached():
            if not self.redis:
                # Whoever consumed from it before does so no longer.
                self._channel.queue_delete(names.results)
            for exchange in (MEETING, names.exchange):
                _fanout(exchange)(self._channel).declare()
                if not self.redis:
                    # An exchange is gone with its last queue; this one, which is always empty,
                    # goes with this connection.
                    queue = kombu.Queue(
                        anchor, _fanout(exchange), exclusive=True, auto_delete=True, max_length=0
                    )
                    queue(self._channel).declare()
            for name in (names.work, names.results):
                queue = _lasting(name)(self._channel)
                queue.declare()
                queue.purge()
            self._consumer = _consume(self._channel, _lasting(names.results), hear)

    def join(self, names: Names, life: str) -> None:
        """Get ready to send to a master; on Redis, be seen by it.

        A subscription ends with the process that made it, at once and whatever it died of.
        """
        if self.redis:
            with self._reached():
                # What is sent to the master need not be kept for ever.
                _lasting(names.results)(self._channel).declare()
                self._pulse = self._client.pubsub()
                self._pulse.subscribe(names.pulse(life))

    def dead(self, names: Names, lives: Sequence[str]) -> set[str]:
        """Which of those who joined are gone without a word, as far as Redis knows."""
        if not self.redis or not lives:
            return set()
        with self._reached():
            try:
                counts = self._client.pubsub_numsub(*map(names.pulse, lives))
            except ResponseError:
                return set()  # not every user may ask; they are silent, at any rate
            return {life for life, (_, count) in zip(lives, counts, strict=True) if not count}

    def size(self, queue: str) -> int:
        """How many messages wait in a queue."""
        with self._reached():
            if self.redis:
                return int(self._client.llen(queue))
            return int(self._channel.queue_declare(queue, passive=True).message_count)

    def keep(self, names: Names) -> None:
        """Put off the end of what the broker removes by itself; to be called every few minutes."""
        with self._reached():
            _lasting(names.work)(self._channel).declare()
            if self.redis:
                for key in names.unacked.values():
                    self._client.expire(key, int(EXPIRES))

    def store(self, key: str, blob: bytes) -> None:
        """Put a blob where hosts can fetch it, on Redis."""
        with self._reached():
            self._client.set(key, blob, ex=int(EXPIRES))

    def fetch(self, key: str) -> bytes | None:
        """Give a blob, if it is there."""
        with self._reached():
            found: bytes | None = self._client.get(key)
            return found

    def discard(self, *keys: str) -> None:
        """Remove keys from Redis."""
        if keys and self.redis:
            with self._reached():
                self._client.delete(*keys)

    def remove(self, names: Names) -> None:
        """Remove the queues of a run; the exchange for all goes with its last queue."""
        self.discard(names.work, names.results, *names.unacked.values())
        if not self.redis:
            with self._reached():
                self._consumer.cancel()
                for name in (names.work, names.results):
                    self._channel.queue_delete(name)
                self._channel.exchange_delete(names.exchange)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(*self._errors):
            if self._pulse is not None:
                self._pulse.close()
        try:
            self._connection.release()
        except (*self._errors, RuntimeError):
            self._connection.collect()

    @property
    def _client(self) -> Any:  # noqa: ANN401 - Redis
        with self._channel.conn_or_acquire() as client:
            return client


def _consume(channel: Any, queue: Any, hear: Callable[[Any], None]) -> Any:  # noqa: ANN401 - kombu
    consumer = kombu.Consumer(channel, [queue], no_ack=True, on_message=hear)
    consumer.consume()
    return consumer


def _lasting(name: str) -> Any:  # noqa: ANN401 - kombu
    return kombu.Queue(name, expires=EXPIRES)


def _fanout(exchange: str) -> Any:  # noqa: ANN401 - kombu
    return kombu.Exchange(exchange, type="fanout", durable=False, auto_delete=True)
