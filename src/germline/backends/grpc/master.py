"""The master's end: a server that hands batches to the hosts that have joined it.

All of the protocol happens in one thread of its own, on an asyncio loop. The run's thread puts
batches into it and takes events out.
"""

import asyncio
import hmac
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import grpc
import grpc.aio

from germline.address import Address, bracketed
from germline.backends.grpc import codec, schema
from germline.backends.grpc.status import Progress
from germline.backends.hosts.admission import Fault, Rejected
from germline.backends.hosts.coordinator import Coordinator, Member
from germline.backends.hosts.local import LocalHost
from germline.backends.hosts.messages import LEASE, FromMaster, FromWorker
from germline.backends.protocols import WorkerStatus
from germline.batches import Batch, pack
from germline.device import Device
from germline.errors import InputError
from germline.messages import Event, Key, Problem, Request

MESSAGE = 4 * 2**20  # the largest message that a host may send, in bytes
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


CODES = {
    Fault.TOKEN: grpc.StatusCode.UNAUTHENTICATED,
    Fault.WORDS: grpc.StatusCode.INVALID_ARGUMENT,
    Fault.KIND: grpc.StatusCode.FAILED_PRECONDITION,
    Fault.BANNED: grpc.StatusCode.PERMISSION_DENIED,
}
Outbox = asyncio.Queue[FromMaster | None]
"""What a host is to be told waits here until it can be written."""


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what went wrong in a loop, as asyncio does, but for what nobody waits for.

    gRPC has one queue for all loops of a process. An answer for a master that has closed since is
    handed to the next one, which cannot deliver it.
    """
    error = context.get("exception")
    if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
        loop.default_exception_handler(context)


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
        device: Device = "auto",
        trust: bool = False,
        lease: float = LEASE,
    ) -> None:
        self.address = address
        self.token = token
        self.certificate = certificate
        self.key = key
        self.local = LocalHost(workers, device=device, token=token, trust=trust)
        self.port = 0  # that is listened to, once it is open
        self.refused = 0  # streams, so far
        self._coordinator = Coordinator(lease)
        self._inner = 0  # the port for processes of this machine
        self._problem: Problem | None = None
        self._run = ""
        self._progress = Progress()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: grpc.aio.Server | None = None
        self._over = asyncio.Event()

    def open(self, problem: Problem, run: str = "") -> None:
        """Listen, and let hosts join from now on."""
        self._problem, self._run = problem, run
        self._coordinator.open(problem, run)
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
            self._progress.ask(request)
        self._pass_on(pack(batch, avoid))

    def results(self, timeout: float) -> Iterator[Event]:
        """Give what hosts have sent, and what was lost with them."""
        self.local.check(self._coordinator.roster.known)
        for event in self._coordinator.taken(timeout):
            self._progress.note(event)
            yield event

    def cancel(self, keys: Iterable[Key]) -> None:
        """Forget what waits, and tell hosts to forget the rest."""
        given_up = set(keys)
        for key in given_up:
            self._progress.forget(key)
        self._pass_on(given_up)

    def ban(self, host: str) -> None:
        """Send a host away for good."""
        if host == self.local.name:
            self.local.close()
        self._do(self._coordinator.ban, host)

    def put(self, blob: bytes) -> str:
        """Keep a blob for hosts that ask for it."""
        return self._coordinator.blobs.put(blob)

    def workers(self) -> list[WorkerStatus]:
        """The hosts that have joined."""
        return self._coordinator.roster.status()

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
        if self._coordinator.put_in(work):
            self._do(self._coordinator.feed)

    def _do(self, what: Any, *arguments: Any) -> None:  # noqa: ANN401 - any function
        if self._loop is not None:
            self._loop.call_soon_threadsafe(what, *arguments)

    # From here on, all is done by the thread of the asyncio loop.

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
        self._loop.set_exception_handler(_told)
        try:
            self._loop.run_until_complete(serve())
        finally:
            self._loop.close()

    async def _start(self) -> None:
        self._server = server = grpc.aio.server(options=OPTIONS)
        methods = {
            "Work": grpc.stream_stream_rpc_method_handler(
                self._work, codec.parsed, schema.FromMaster.SerializeToString
            ),
            "Status": grpc.unary_unary_rpc_method_handler(
                self._status, lambda asked: asked, schema.StatusReply.SerializeToString
            ),
        }
        handler = grpc.method_handlers_generic_handler(schema.SERVICE, methods)
        server.add_generic_rpc_handlers((handler,))
        place = f"{bracketed(self.address.host)}:{self.address.port}"
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
        self._coordinator.farewell()
        await self._server.stop(GRACE)

    async def _watch(self) -> None:
        """Give up hosts that are silent."""
        while True:
            await asyncio.sleep(self._coordinator.roster.lease / 10)
            self._coordinator.look()

    async def _work(self, messages: AsyncIterator[Any], context: Context) -> None:
        """One host, from its first word to its last."""
        member: Member | None = None
        outbox: Outbox = asyncio.Queue()
        try:
            self._admit(context)
            member = self._coordinator.join(self._read(await context.read()), outbox.put_nowait)
            writer = asyncio.create_task(self._write(outbox, context))
            reader = asyncio.create_task(self._listen(member, context))
            try:
                await asyncio.wait((writer, reader), return_when="FIRST_COMPLETED")
            finally:
                writer.cancel()
                reader.cancel()
                ended = await asyncio.gather(writer, reader, return_exceptions=True)
            for error in ended:
                if isinstance(error, Rejected):
                    raise error
        except grpc.aio.InternalError:
            return  # it hung up while it was spoken to
        except Rejected as error:
            self.refused += 1
            await context.abort(CODES[error.fault], str(error))
        finally:
            if member is not None:
                self._coordinator.gone(member, "hung up")

    def _admit(self, context: Context) -> None:
        """Refuse those that cannot show the token."""
        if self.token is None:
            return
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(_bytes(shown), f"Bearer {self.token}".encode()):
            raise Rejected(Fault.TOKEN, "the token is missing or wrong")

    def _read(self, told: Any) -> FromWorker:  # noqa: ANN401 - protobuf
        if told is grpc.aio.EOF:
            raise Rejected(Fault.WORDS, "hung up without a word")
        try:
            return codec.read_worker(told, self._run)
        except InputError as error:
            raise Rejected(Fault.WORDS, str(error)) from None

    async def _write(self, outbox: Outbox, context: Context) -> None:
        while (message := await outbox.get()) is not None:
            for told in codec.of_master(message):
                await context.write(told)

    async def _listen(self, member: Member, context: Context) -> None:
        while (told := await context.read()) is not grpc.aio.EOF:
            self._coordinator.hear(member, self._read(told))

    async def _status(self, _: object, context: Context) -> Any:  # noqa: ANN401 - protobuf
        """How things are, for onlookers."""
        try:
            self._admit(context)
        except Rejected as error:
            await context.abort(CODES[error.fault], str(error))
        assert self._problem is not None
        reply = self._progress.reply(self._run, self._problem)
        reply.waiting = self._coordinator.waiting
        for host in list(self._coordinator.roster.hosts.values()):
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
