"""The master's end: a server that hands batches to the hosts that have joined it.

All of the protocol happens in one thread of its own, on an asyncio loop. The run's thread puts
batches into it and takes events out.
"""

import asyncio
import contextlib
import hmac
import re
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import grpc
import grpc.aio

from germline import proof
from germline.address import Address
from germline.backends.grpc import schema, wire
from germline.backends.grpc.handout import HandOut
from germline.backends.grpc.standing import Standing
from germline.backends.line import (
    LEASE,
    NAME,
    PROTOCOL,
    Beat,
    Blob,
    Cancel,
    FromMaster,
    FromWorker,
    Goodbye,
    Hello,
    Leaving,
    Ready,
    Results,
    Want,
    Welcome,
    Work,
)
from germline.backends.local import Local
from germline.backends.protocols import WorkerStatus
from germline.backends.roster import Host, Roster
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.messages import Batch, Event, Key, Problem, Request, pack

MESSAGE = 4 * 2**20  # the largest message that a host may send, in bytes
MOST_SLOTS = 4096
GRACE = 2.0  # seconds for hosts to hear that it is over
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),  # two masters on one port would share its hosts
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


Context = Any
"""One call, as grpc.aio.ServicerContext has it."""


class _Stranger(Exception):  # noqa: N818 - who is told to go
    """A host that does not keep to the protocol, or may not join."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Stream:
    """A host's connection: what it is to be told waits here until it can be written."""

    def __init__(self, host: Host, instance: str) -> None:
        self.host = host
        self.instance = instance
        self.outbox: asyncio.Queue[FromMaster | None] = asyncio.Queue()

    def tell(self, message: FromMaster) -> None:
        self.outbox.put_nowait(message)

    def close(self) -> None:
        self.outbox.put_nowait(None)


class Grpc:
    """Serves at an address. With a `token`, hosts must show it; with a certificate, it is TLS.

    `workers` are processes on this machine; `trust` allows these to import code. A host that is
    not heard of for `lease` seconds loses its work.
    """

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        workers: int = 0,
        trust: bool = False,
        lease: float = LEASE,
    ) -> None:
        self.address = address
        self.token = token
        self.certificate = certificate
        self.key = key
        self.local = Local(workers, token=token, trust=trust)
        self.port = 0  # that is listened to, once it is open
        self.refused = 0  # streams, so far
        self._roster = Roster(lease)
        self._inner = 0  # the port for processes of this machine
        self._streams: dict[str, _Stream] = {}
        self._blobs = BlobCache()
        self._inbox: SimpleQueue[Batch | set[Key]] = SimpleQueue()  # to hand out, to cancel
        self._work_left = HandOut()
        self._events: SimpleQueue[list[Event]] = SimpleQueue()
        self._problem: Problem | None = None
        self._run = ""
        self._standing = Standing()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: grpc.aio.Server | None = None
        self._over = asyncio.Event()
        self._fed = False

    def open(self, problem: Problem, run: str = "") -> None:
        """Listen, and let hosts join from now on."""
        self._problem, self._run = problem, run
        opened: SimpleQueue[Exception | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=(opened,), daemon=True)
        self._thread.start()
        error = opened.get()
        if error is not None:
            self._thread.join()
            self._loop = None
            raise InputError(f"backend: {self.address.redacted} cannot be listened to: {error}")
        self.local.start(f"grpc://127.0.0.1:{self._inner}")

    def submit(self, batch: Sequence[Request], avoid: str = "") -> None:
        """Give a batch to a host that has room, or keep it until one has."""
        for request in batch:
            self._standing.ask(request)
        self._pass_on(pack(batch, avoid))

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them."""
        self.local.check(self._roster.known)
        with contextlib.suppress(Empty):
            events = self._events.get(timeout=timeout)
            while True:
                for event in events:
                    self._standing.note(event)
                    yield event
                events = self._events.get_nowait()

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits, and tell hosts to forget the rest."""
        given_up = set(keys)
        for key in given_up:
            self._standing.forget(key)
        self._pass_on(given_up)

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        if host == self.local.name:
            self.local.close()
        self._do(self._ban, host)

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined."""
        return self._roster.status()

    def close(self) -> None:
        """Say goodbye, and stop listening."""
        self.local.close()
        if self._loop is not None and self._thread is not None:
            self._do(self._over.set)
            self._thread.join()
            self._loop = None

    def __enter__(self) -> "Grpc":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pass_on(self, work: Batch | set[Key]) -> None:
        """Put something into the inbox: in order, so that what is asked for again stays."""
        self._inbox.put(work)
        if not self._fed:
            self._fed = True
            self._do(self._feed)

    # From here on, all is done by the thread of the asyncio loop.

    def _do(self, what: Any, *arguments: Any) -> None:  # noqa: ANN401 - any function
        if self._loop is not None:
            self._loop.call_soon_threadsafe(what, *arguments)

    def _serve(self, opened: SimpleQueue[Exception | None]) -> None:
        async def serve() -> None:
            try:
                await self._start()
            except Exception as error:
                opened.put(error)
                return
            opened.put(None)
            watch = asyncio.create_task(self._watch())
            await self._over.wait()
            watch.cancel()
            await self._stop()

        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(serve())
        finally:
            self._loop.close()

    async def _start(self) -> None:
        self._server = server = grpc.aio.server(options=OPTIONS)
        methods = {
            "Work": grpc.stream_stream_rpc_method_handler(
                self._work, wire.parsed, schema.FromMaster.SerializeToString
            ),
            "Status": grpc.unary_unary_rpc_method_handler(
                self._status, lambda asked: asked, schema.StatusReply.SerializeToString
            ),
        }
        handler = grpc.method_handlers_generic_handler(schema.SERVICE, methods)
        server.add_generic_rpc_handlers((handler,))
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        place = f"{host}:{self.address.port}"
        if self.certificate is not None and self.key is not None:
            secret = grpc.ssl_server_credentials([(self.key, self.certificate)])
            self.port = server.add_secure_port(place, secret)
        else:
            self.port = server.add_insecure_port(place)
        # Processes of this machine need no certificate to reach it.
        self._inner = server.add_insecure_port("127.0.0.1:0") if self.local.count else self.port
        await server.start()

    async def _stop(self) -> None:
        assert self._server is not None
        for stream in self._streams.values():
            stream.tell(Goodbye())
            stream.close()
        await self._server.stop(GRACE)

    async def _watch(self) -> None:
        """Give up hosts that are silent."""
        while True:
            await asyncio.sleep(self._roster.lease / 10)
            for host in self._roster.silent():
                self._gone(self._streams[host.name], "was silent for too long")

    async def _work(self, messages: AsyncIterator[Any], context: Context) -> None:
        """One host, from its first word to its last."""
        stream: _Stream | None = None
        try:
            self._admit(context)
            stream = self._joined(self._read(await context.read()))
            writer = asyncio.create_task(self._write(stream, context))
            reader = asyncio.create_task(self._listen(stream, context))
            try:
                await asyncio.wait((writer, reader), return_when="FIRST_COMPLETED")
            finally:
                writer.cancel()
                reader.cancel()
                ended = await asyncio.gather(writer, reader, return_exceptions=True)
            for error in ended:
                if isinstance(error, _Stranger):
                    raise error
        except grpc.aio.InternalError:
            return  # it hung up while it was spoken to
        except _Stranger as error:
            self.refused += 1
            await context.abort(error.code, str(error))
        finally:
            if stream is not None:
                self._gone(stream, "hung up")

    def _admit(self, context: Context) -> None:
        """Refuse those that cannot show the token."""
        if self.token is None:
            return
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(_bytes(shown), f"Bearer {self.token}".encode()):
            raise _Stranger(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

    def _read(self, told: Any) -> FromWorker:  # noqa: ANN401 - protobuf
        if told is grpc.aio.EOF:
            raise _Stranger(grpc.StatusCode.INVALID_ARGUMENT, "hung up without a word")
        try:
            return wire.read_worker(told, self._run)
        except InputError as error:
            raise _Stranger(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None

    def _joined(self, hello: FromWorker) -> _Stream:
        """Let a host join, and tell it what this is about."""
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        if not isinstance(hello, Hello):
            raise _Stranger(invalid, "the first message must be a hello")
        if hello.protocol != PROTOCOL:
            reason = f"this master speaks version {PROTOCOL} of the protocol, not {hello.protocol}"
            raise _Stranger(grpc.StatusCode.FAILED_PRECONDITION, reason)
        if not re.fullmatch(NAME, hello.worker) or not 1 <= hello.slots <= MOST_SLOTS:
            raise _Stranger(invalid, "the name or the number of slots cannot be")
        if hello.worker in self._roster.banned:
            raise _Stranger(grpc.StatusCode.PERMISSION_DENIED, "this host is in quarantine")
        before = self._streams.get(hello.worker)
        if before is not None and before.instance != hello.instance:
            reason = f"another host is called {hello.worker} too"
            raise _Stranger(grpc.StatusCode.FAILED_PRECONDITION, reason)
        if before is not None:
            self._gone(before, "came back", blamed=False)
        host = self._roster.join(hello.worker, hello.slots)
        stream = self._streams[host.name] = _Stream(host, hello.instance)
        assert self._problem is not None
        problem, lease = self._problem, self._roster.lease
        stream.tell(Welcome(self._run, problem, problem.spec_hash, lease))
        return stream

    async def _write(self, stream: _Stream, context: Context) -> None:
        while (message := await stream.outbox.get()) is not None:
            for told in wire.of_master(message):
                await context.write(told)

    async def _listen(self, stream: _Stream, context: Context) -> None:
        while (told := await context.read()) is not grpc.aio.EOF:
            stream.host.heard = time.monotonic()
            self._hear(stream, self._read(told))

    def _hear(self, stream: _Stream, message: FromWorker) -> None:
        host = stream.host
        if isinstance(message, Results):
            events = list(host.answered(message.events))
            if events:
                self._events.put(events)
            self._offer(stream)
        elif isinstance(message, Ready):
            self._ready(stream, message)
        elif isinstance(message, Want):
            known = message.digest in self._blobs
            data = self._blobs[message.digest] if known else b""
            stream.tell(Blob(message.digest, data))
        elif isinstance(message, Leaving):
            host.leaving = True
            self._work_left.remove(host)
        elif not isinstance(message, Beat):
            raise _Stranger(grpc.StatusCode.INVALID_ARGUMENT, "hello was said already")

    def _ready(self, stream: _Stream, message: Ready) -> None:
        assert self._problem is not None
        if self._problem.arithmetic == "exact":
            wanted = proof.wanted(self._problem.task.name)
            if message.proof != wanted:
                reason = "exact arithmetic: this host computes something else than all others"
                raise _Stranger(grpc.StatusCode.FAILED_PRECONDITION, reason)
        stream.host.ready = True
        self._offer(stream)

    def _offer(self, stream: _Stream) -> None:
        """Let a host have more, if it has room."""
        if self._streams.get(stream.host.name) is stream:
            self._work_left.offer(stream.host)
            self._feed()

    def _feed(self) -> None:
        """Take over what the run's thread has put into the inbox, and hand out what waits."""
        self._fed = False
        with contextlib.suppress(Empty):
            while True:
                work = self._inbox.get_nowait()
                if isinstance(work, Batch):
                    self._work_left.waiting.append(work)
                else:
                    self._cancel(work)
        others = sum(host.ready and not host.leaving for host in self._roster.hosts.values()) > 1
        while (found := self._work_left.next(others)) is not None:
            host, batch = found
            self._streams[host.name].tell(Work(batch))

    def _cancel(self, keys: set[Key]) -> None:
        self._work_left.cancel(keys)
        for stream in self._streams.values():
            held = tuple(key for key in keys if stream.host.take(key))
            if held:
                stream.tell(Cancel(held))
                self._work_left.offer(stream.host)

    def _ban(self, name: str) -> None:
        self._roster.banned.add(name)
        stream = self._streams.get(name)
        if stream is not None:
            stream.tell(Goodbye("its results were wrong: this host is in quarantine"))
            self._gone(stream, "is in quarantine", blamed=False)

    def _gone(self, stream: _Stream, reason: str, *, blamed: bool = True) -> None:
        """A host is not there any more; what it held is lost."""
        name = stream.host.name
        if self._streams.get(name) is not stream:
            return
        del self._streams[name]
        self._work_left.remove(stream.host)
        blamed = blamed and not stream.host.leaving
        lost = self._roster.leave(name, reason, blamed=blamed)
        if lost:
            self._events.put(lost)
        stream.close()

    async def _status(self, _: object, context: Context) -> Any:  # noqa: ANN401 - protobuf
        """How things are, for onlookers."""
        try:
            self._admit(context)
        except _Stranger as error:
            await context.abort(error.code, str(error))
        assert self._problem is not None
        reply = self._standing.reply(self._run, self._problem)
        reply.waiting = len(self._work_left.waiting)
        for host in list(self._roster.hosts.values()):
            silent = time.monotonic() - host.heard
            reply.workers.add(
                name=host.name,
                slots=host.slots,
                holds=len(host.places),
                done=host.done,
                silent=silent,
            )
        return reply


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
