"""What a run asks of whoever evaluates, and what it is told: requests, evaluations and failures.

Everything is plain data. `batches.py` says how requests travel.
"""

import hashlib
from importlib import metadata
from typing import NamedTuple

import msgspec

from germline.errors import InputError, explain
from germline.files import Arithmetic, TaskRef
from germline.genome import FORMAT, Genome, PolicyRef


class Key(NamedTuple):
    """Which request of which run: the same work always has the same key."""

    run: str
    generation: int
    phase: int
    number: int


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that an evaluation depends on besides the request itself; its hash is the spec hash.

    `siblings` is the width of shared products, 0 for none.
    """

    task: TaskRef
    policy: PolicyRef
    arithmetic: Arithmetic = "float32"
    imports: tuple[str, ...] = ()
    siblings: int = 0

    @property
    def spec_hash(self) -> str:
        """SHA-256 over the task, the policy, the arithmetic, and the versions that matter."""
        facts = msgspec.to_builtins(self)
        if not self.siblings:
            del facts["siblings"]  # which older runs did not know
        if facts["task"]["settings"].get("behaviour", ...) is None:
            del facts["task"]["settings"]["behaviour"]  # nor this
        if self.task.name == "atari":
            facts["ale-py"] = metadata.version("ale-py")
        text = msgspec.json.encode([FORMAT, facts], order="sorted")
        return hashlib.sha256(text).hexdigest()


class Request(msgspec.Struct, frozen=True):
    """One individual to be scored on some episodes, each of at most `cap` steps.

    `context` is the hash of the blob with what the generation has in common.
    """

    key: Key
    genome: Genome
    episode_seeds: tuple[int, ...]
    cap: int | None = None
    context: str | None = None


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """Observations added up, for the statistics of a normaliser: one number per input."""

    count: int
    total: tuple[float, ...]
    squares: tuple[float, ...]


class Frozen(msgspec.Struct, frozen=True, array_like=True):
    """A context as a blob: the mean and standard deviation of each input."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Evaluation(msgspec.Struct, frozen=True, array_like=True, tag="evaluation"):
    """How an individual did: one number per episode.

    `steps` are decisions of the policy, `frames` what the game's own counter says. `ends` has one
    letter per episode: t for terminated by the task, l for its own time limit, c for the cap.
    `behaviour` is the mean over the episodes.
    """

    key: Key
    returns: tuple[float, ...]
    steps: tuple[int, ...]
    frames: tuple[int, ...]
    ends: str = ""
    behaviour: tuple[float, ...] = ()
    observation_sums: Sums | None = None
    seconds: float = 0.0
    worker: str = ""

    @property
    def fitness(self) -> float:
        """The mean return."""
        return sum(self.returns) / len(self.returns)


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="failure"):
    """An individual that could not be scored; its fitness is -inf."""

    key: Key
    reason: str
    attempts: int = 1
    worker: str = ""

    @property
    def fitness(self) -> float:
        """Worse than anything that was scored."""
        return float("-inf")


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """Requests that died with their worker, for the dispatcher to give out again.

    Those it was at are `blamed`: if it happens to one again and again, it is the cause.
    """

    keys: tuple[Key, ...]
    reason: str
    blamed: bool = True


Result = Evaluation | Failure
Event = Evaluation | Failure | Lost


def keys_of(event: Event) -> tuple[Key, ...]:
    """The requests that an event is about."""
    return event.keys if isinstance(event, Lost) else (event.key,)


def handed_back(keys: tuple[Key, ...]) -> Lost:
    """Requests that whoever leaves has not answered; nobody is to blame."""
    return Lost(keys, "handed back", blamed=False)


encode = msgspec.msgpack.Encoder().encode
_events = msgspec.msgpack.Decoder(tuple[Event, ...])


def decode_events(data: bytes) -> tuple[Event, ...]:
    """Read what a worker has to say."""
    try:
        return _events.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(f"results: {explain(error)}") from None
