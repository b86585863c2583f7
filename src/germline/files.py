"""Genome files: readable JSON, or one safetensors file when the root is a Snapshot.

Files are data. They name registered policies and tasks, never code, and every size is bounded
before anything is allocated for it. A malformed file gives one error that names the field.
"""

import math
import re
import sys
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from germline import blobs, disk
from germline.errors import InputError, explain
from germline.genome import (
    FORMAT,
    MAX_GENES,
    Gene,
    Genome,
    Name,
    PolicyRef,
    Root,
    Snapshot,
    Text,
    Uint32,
)

MAX_JSON_BYTES = 2**24
MAX_OBSERVATIONS = 2**20
MAX_SIBLINGS = 256

T = TypeVar("T")
Arithmetic = Literal["float32", "bfloat16", "exact"]
Plain = bool | int | float | Text | None
Named = Annotated[
    dict[Text, Plain | Annotated[list[Plain], msgspec.Meta(max_length=1024)]],
    msgspec.Meta(max_length=64),
]
Group = dict[Text, Plain | Named]
TaskSetting = Plain | Named | Annotated[list[Plain | Group], msgspec.Meta(max_length=1024)]
TaskSettings = Annotated[dict[Text, TaskSetting], msgspec.Meta(max_length=64)]
Numbers = Annotated[tuple[float, ...], msgspec.Meta(max_length=MAX_OBSERVATIONS)]


class TaskRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task by registered name, with its settings: plain data, not part of a genome's id."""

    name: Name
    settings: TaskSettings = {}


class Normaliser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frozen observation statistics that the individual was scored with, one number per input."""

    mean: Numbers
    std: Numbers

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise InputError(f"mean has {len(self.mean)} numbers and std {len(self.std)}")
        if not all(0 < number < math.inf for number in self.std):
            wrong = next(number for number in self.std if not 0 < number < math.inf)
            raise InputError(f"std: every number must be above 0, and one is {wrong}")


@dataclass(frozen=True)
class GenomeFile:
    """A genome with all that is needed to play it.

    `weights` is the blob of a Snapshot root, `siblings` the width of the shared products that it
    was scored in, 0 if there were none.
    """

    genome: Genome
    task: TaskRef | None = None
    arithmetic: Arithmetic = "float32"
    normaliser: Normaliser | None = None
    weights: bytes | None = None
    siblings: int = 0

    def snapshots(self) -> dict[str, bytes]:
        """Give the blobs that decoding may ask for."""
        root = self.genome.root
        return {root.sha256: self.weights} if isinstance(root, Snapshot) and self.weights else {}


class _Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive genes that share σ and operator."""

    sigma: float
    operator: str
    seeds: Annotated[tuple[Uint32, ...], msgspec.Meta(min_length=1, max_length=MAX_GENES)]

    def __post_init__(self) -> None:
        Gene(0, self.sigma, self.operator)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of the JSON form, in the order in which they are written."""

    germline: int
    policy: PolicyRef
    root: Root
    genes: tuple[_Run, ...]
    id: str | None = None
    task: TaskRef | None = None
    arithmetic: Arithmetic = "float32"
    siblings: Annotated[int, msgspec.Meta(ge=0, le=MAX_SIBLINGS)] = 0
    normaliser: Normaliser | None = None


class _Version(msgspec.Struct):
    germline: int


def to_json(file: GenomeFile) -> str:
    """Write the JSON form: one line per field, one per run of like genes."""
    genome = file.genome
    runs = [
        _Run(sigma, operator, tuple(gene.seed for gene in run))
        for (sigma, operator), run in groupby(genome.genes, lambda g: (g.sigma, g.operator))
    ]
    fields: dict[str, Any] = {
        "germline": FORMAT,
        "id": genome.id,
        "policy": genome.policy,
        "root": genome.root,
        "task": file.task,
        "arithmetic": file.arithmetic,
        "siblings": file.siblings or None,
        "normaliser": file.normaliser,
    }
    lines = [f'  "{key}": {_compact(value)}' for key, value in fields.items() if value is not None]
    genes = ",".join(f"\n    {_compact(run)}" for run in runs)
    lines.append(f'  "genes": [{genes}\n  ]' if runs else '  "genes": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: bytes, source: str = "genome") -> GenomeFile:
    """Read the JSON form; `source` names the file in errors."""
    if len(text) > MAX_JSON_BYTES:
        raise _too_large(source)
    version = _parse(text, _Version, source).germline
    if version != FORMAT:
        raise InputError(
            f"{source}: germline: format {version} is not known; this program reads {FORMAT}"
        )
    document = _parse(text, _Document, source)
    if sum(len(run.seeds) for run in document.genes) > MAX_GENES:
        raise InputError(f"{source}: genes: more than the {MAX_GENES:,} allowed")
    genes = (Gene(seed, run.sigma, run.operator) for run in document.genes for seed in run.seeds)
    genome = Genome(document.policy, document.root, tuple(genes))
    if document.id is not None and document.id != genome.id:
        raise InputError(
            f"{source}: id: the file says {document.id[:16]!r}, its contents give "
            f"{genome.id!r}; if you changed it on purpose, remove the id"
        )
    if document.siblings and document.arithmetic == "exact":
        raise InputError(f"{source}: siblings: shared products are floats, the arithmetic is exact")
    facts = document.task, document.arithmetic, document.normaliser
    return GenomeFile(genome, *facts, siblings=document.siblings)


def ending(file: GenomeFile) -> str:
    """How the name of a file ends that has the form that suits the root."""
    return ".safetensors" if isinstance(file.genome.root, Snapshot) else ".json"


def write(path: Path, file: GenomeFile, *, replace: bool = False) -> None:
    """Write the form that suits the root, whole or not at all."""
    text = to_json(file)
    from_json(text.encode(), str(path))  # what we would not read, we do not write
    if not isinstance(file.genome.root, Snapshot):
        disk.save(path, text.encode(), replace=replace)
        return
    if file.weights is None:
        raise InputError("root: a Snapshot cannot be written without its weights")
    import numpy as np
    from safetensors.numpy import save as to_safetensors

    root = {"root": np.frombuffer(file.weights, "<f4")}
    disk.save(path, to_safetensors(root, {"germline": text}), replace=replace)


def read_plain(path: Path, kind: Any) -> Any:  # noqa: ANN401 - any annotation
    """Read what another system wrote as JSON of some type; `-` is standard input."""
    if str(path) == "-":
        text, source = _standard_input(), "standard input"
    else:
        source = str(path)
        try:
            disk.regular_size(path)
            with path.open("rb") as stream:
                text = stream.read(MAX_JSON_BYTES + 1)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
    if len(text) > MAX_JSON_BYTES:
        raise _too_large(source)
    return _parse(text, kind, source)


def read(path: Path) -> GenomeFile:
    """Read either form; `-` reads JSON from standard input."""
    if str(path) == "-":
        return from_json(_standard_input(), "standard input")
    try:
        size = disk.regular_size(path)
        with path.open("rb") as stream:
            start = stream.read(9)
            # A length of less than 2⁵⁶ holds a zero byte, and text holds none.
            if start[8:] == b"{" and b"\0" in start:
                return _read_safetensors(path)
            if size > MAX_JSON_BYTES:
                raise _too_large(str(path))
            return from_json(start + stream.read(MAX_JSON_BYTES), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _standard_input() -> bytes:
    try:
        if sys.stdin is None:
            raise OSError("is closed")
        return sys.stdin.buffer.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise InputError(f"standard input: {error.strerror or error}") from None


def _read_safetensors(path: Path) -> GenomeFile:
    tensors, metadata = disk.read_safetensors(path)
    if "germline" not in metadata:
        raise InputError(f"{path}: metadata: has no germline entry, so it holds no genome")
    file = from_json(metadata["germline"].encode(), str(path))
    root = file.genome.root
    if not isinstance(root, Snapshot):
        raise InputError(f"{path}: root: a safetensors genome has a Snapshot root")
    if set(tensors) != {"root"} or tensors["root"].ndim != 1:
        raise InputError(f"{path}: expected one flat tensor named root, got {sorted(tensors)[:5]}")
    try:
        blob = tensors["root"].tobytes()
        blobs.unpack(blob, root.sha256, tensors["root"].size)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(file, weights=blob)


def _too_large(source: str) -> InputError:
    return InputError(f"{source}: over {MAX_JSON_BYTES // 2**20} MiB, too large for a genome")


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _parse(text: bytes, kind: type[T], source: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {explain(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not valid UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply for a genome") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{source}: {_broken(text, str(error))}") from None


def _broken(text: bytes, message: str) -> str:
    """Name the field in which JSON breaks off or is malformed."""
    place = re.search(r"\(byte (\d+)\)", message)
    end = int(place[1]) if place else len(text)
    keys = re.findall(rb'"([a-z0-9_]+)"\s*:', text[max(0, end - 4096) : end])
    field = f"{keys[-1].decode()}: " if keys else ""
    if "truncated" in message:
        return f"{field}truncated, the file ends here"
    return field + message.replace("JSON is malformed", "malformed JSON")
