"""Messages as protobuf: the structs of `hosts.messages`, written as germline.proto has them.

Keys travel without the run, which a connection is about as a whole.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from germline.backends.grpc import schema
from germline.backends.hosts.messages import (
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
from germline.batches import Base, Batch, Child, Lineage, SharedGenes
from germline.errors import InputError
from germline.genome import Birth, Gene, Root, Snapshot
from germline.messages import Evaluation, Event, Failure, Key, Lost, Problem, Sums

PART = 2**20  # bytes of a blob in one message
LONGEST_REASON = 1000


def of_worker(message: FromWorker) -> Any:  # noqa: ANN401 - protobuf
    """Write what a host says."""
    told = schema.FromWorker()
    if isinstance(message, Results):
        _write_results(told.results, message.events)
    elif isinstance(message, Hello):
        told.hello.protocol = message.protocol
        told.hello.worker = message.worker
        told.hello.slots = message.slots
        told.hello.version = message.version
        told.hello.instance = message.instance
        told.hello.appetite = message.appetite
    elif isinstance(message, Ready):
        told.ready.SetInParent()
        told.ready.proof.update(message.proof)
    elif isinstance(message, Want):
        told.want.sha256 = message.digest
    elif isinstance(message, Beat):
        told.beat.slots = message.slots
    elif isinstance(message, Leaving):
        told.leaving.SetInParent()
    return told


def parsed(data: bytes) -> Any:  # noqa: ANN401 - protobuf
    """What a host says; bytes that are no message say nothing."""
    try:
        return schema.FromWorker.FromString(data)
    except DecodeError:
        return schema.FromWorker()


def read_worker(told: Any, run: str) -> FromWorker:  # noqa: ANN401 - protobuf
    """Read what a host says; only its form is checked."""
    kind = told.WhichOneof("kind")
    if kind == "results":
        return Results(tuple(_events(told.results, run)))
    if kind == "hello":
        hello = told.hello
        about = hello.version, hello.instance, max(1, hello.appetite)
        return Hello(hello.worker, hello.slots, hello.protocol, *about)
    if kind == "ready":
        return Ready(dict(told.ready.proof))
    if kind == "want":
        return Want(told.want.sha256)
    if kind == "beat":
        return Beat(told.beat.slots)
    if kind == "leaving":
        return Leaving()
    raise InputError("a message says nothing that this version knows")


def of_master(message: FromMaster) -> Iterable[Any]:
    """Write what a master says; a blob is several messages."""
    if isinstance(message, Blob):
        data = message.data
        for start in range(0, max(len(data), 1), PART):
            told = schema.FromMaster()
            told.blob.sha256 = message.digest
            told.blob.size = len(data)
            told.blob.data = data[start : start + PART]
            yield told
        return
    told = schema.FromMaster()
    if isinstance(message, Work):
        _write_batch(told.batch, message.batch)
    elif isinstance(message, Welcome):
        told.welcome.run = message.run
        told.welcome.problem = msgspec.json.encode(message.problem).decode()
        told.welcome.spec_hash = message.spec_hash
        told.welcome.lease = message.lease
    elif isinstance(message, Cancel):
        told.cancel.SetInParent()
        for key in message.keys:
            _write_key(told.cancel.keys.add(), key)
    elif isinstance(message, Goodbye):
        told.goodbye.reason = message.reason
        told.goodbye.SetInParent()
    yield told


def read_master(told: Any, run: str) -> FromMaster:  # noqa: ANN401 - protobuf
    """Read what a master says; of a blob, only a part."""
    kind = told.WhichOneof("kind")
    if kind == "batch":
        return Work(_batch(told.batch, run))
    if kind == "blob":
        return Blob(told.blob.sha256, told.blob.data)
    if kind == "welcome":
        welcome = told.welcome
        try:
            problem = msgspec.json.decode(welcome.problem, type=Problem)
        except msgspec.DecodeError as error:
            raise InputError(f"the master's problem cannot be read: {error}") from None
        return Welcome(welcome.run, problem, welcome.spec_hash, welcome.lease)
    if kind == "cancel":
        return Cancel(tuple(_key(key, run) for key in told.cancel.keys))
    if kind == "goodbye":
        return Goodbye(told.goodbye.reason)
    raise InputError("the master says nothing that this version knows")


def _write_key(told: Any, key: Key) -> None:  # noqa: ANN401 - protobuf
    _, told.generation, told.phase, told.number = key


def _key(told: Any, run: str) -> Key:  # noqa: ANN401 - protobuf
    return Key(run, told.generation, told.phase, told.number)


def _write_results(told: Any, events: Iterable[Event]) -> None:  # noqa: ANN401 - protobuf
    told.SetInParent()
    for event in events:
        if isinstance(event, Evaluation):
            found = told.evaluations.add(
                returns=event.returns,
                steps=event.steps,
                frames=event.frames,
                ends=event.ends,
                behaviour=event.behaviour,
                seconds=event.seconds,
                process=event.worker,
            )
            if event.observation_sums is not None:
                sums = event.observation_sums
                found.sums.count = sums.count
                found.sums.total.extend(sums.total)
                found.sums.squares.extend(sums.squares)
            _write_key(found.key, event.key)
        elif isinstance(event, Failure):
            failed = told.failures.add(reason=event.reason, process=event.worker)
            _write_key(failed.key, event.key)
        else:
            lost = told.lost.add(reason=event.reason, blamed=event.blamed)
            for key in event.keys:
                _write_key(lost.keys.add(), key)


def _events(told: Any, run: str) -> Iterable[Event]:  # noqa: ANN401 - protobuf
    for found in told.evaluations:
        sums = None
        if found.HasField("sums"):
            some = found.sums
            sums = Sums(some.count, tuple(some.total), tuple(some.squares))
        yield Evaluation(
            _key(found.key, run),
            tuple(found.returns),
            tuple(found.steps),
            tuple(found.frames),
            found.ends,
            tuple(found.behaviour),
            sums,
            found.seconds,
            found.process,
        )
    for found in told.failures:
        reason = found.reason[:LONGEST_REASON]
        yield Failure(_key(found.key, run), reason, worker=found.process)
    for found in told.lost:
        keys = tuple(_key(key, run) for key in found.keys)
        yield Lost(keys, found.reason[:LONGEST_REASON], found.blamed)


def _write_batch(told: Any, batch: Batch) -> None:  # noqa: ANN401 - protobuf
    told.avoid = batch.avoid
    told.SetInParent()
    for base in batch.bases:
        written = told.bases.add(digest=base.digest)
        _write_root(written.root, base.lineage.root)
        for shared in base.lineage.runs:
            written.genes.add(sigma=shared.sigma, operator=shared.operator, seeds=shared.seeds)
    for child in batch.children:
        made = told.children.add(base=child.base, episode_seeds=child.episode_seeds)
        _write_key(made.key, child.key)
        gene = child.gene
        if gene is not None:
            made.gene.sigma = gene.sigma
            made.gene.operator = gene.operator
            made.gene.seeds = gene.seed.to_bytes(4, "little")
        if child.cap is not None:
            made.cap = child.cap
        if child.context is not None:
            made.context = child.context


def _batch(told: Any, run: str) -> Batch:  # noqa: ANN401 - protobuf
    bases = tuple(
        Base(
            base.digest,
            Lineage(
                _root(base.root),
                tuple(SharedGenes(g.sigma, g.operator, g.seeds) for g in base.genes),
            ),
        )
        for base in told.bases
    )
    children = tuple(
        Child(
            _key(child.key, run),
            child.base,
            _gene(child.gene) if child.HasField("gene") else None,
            tuple(child.episode_seeds),
            child.cap if child.HasField("cap") else None,
            child.context if child.HasField("context") else None,
        )
        for child in told.children
    )
    return Batch(bases, children, told.avoid)


def _gene(told: Any) -> Gene:  # noqa: ANN401 - protobuf
    if len(told.seeds) != 4:
        raise InputError("batch: the gene of a child is not one seed")
    return Gene(int.from_bytes(told.seeds, "little"), told.sigma, told.operator)


def _write_root(told: Any, root: Root) -> None:  # noqa: ANN401 - protobuf
    if isinstance(root, Birth):
        told.birth = root.seed
    elif isinstance(root, Snapshot):
        told.snapshot = root.sha256
    else:
        told.foreign.format = root.format
        told.foreign.payload = msgspec.json.encode(root.payload).decode()
        told.foreign.sha256 = root.sha256


def _root(told: Any) -> Root:  # noqa: ANN401 - protobuf
    kind = told.WhichOneof("kind")
    if kind == "birth":
        return Birth(told.birth)
    if kind == "snapshot":
        return Snapshot(told.snapshot)
    if kind == "foreign":
        foreign = told.foreign
        try:
            values = {
                "kind": "foreign",
                "format": foreign.format,
                "payload": msgspec.json.decode(foreign.payload),
                "sha256": foreign.sha256,
            }
            return msgspec.convert(values, Root)
        except msgspec.DecodeError as error:
            raise InputError(f"batch: root: {error}") from None
    raise InputError("batch: a base has no root")
