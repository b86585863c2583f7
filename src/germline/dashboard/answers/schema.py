"""What the page is told: plain values, whose fields are the schema of the interface.

Numbers that JSON lacks, NaN and the infinities, are null there, so every float may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Number = float | None
Numbers = list[Number]


@dataclass(frozen=True)
class Row:
    """A run in a line of the table; one that cannot be read has an `error` and nothing else.

    `best` is the highest score a champion ever had, `elite` that of the present one; `unplayable`
    says why its individuals cannot be played here, None if they can.
    """

    key: str
    name: str
    error: str | None = None
    title: str = ""
    task: str = ""
    policy: str = ""
    algorithm: str = ""
    arithmetic: str = ""
    seed: int = 0
    state: str = ""
    finished_by: str | None = None
    generations: int = 0
    evaluations: int = 0
    failures: int = 0
    best: Number = None
    elite: Number = None
    champion: str | None = None
    frames: int = 0
    steps: int = 0
    seconds: Number = 0.0
    cost: Number = 0.0
    seconds_to_go: Number = None
    cost_to_go: Number = None
    pruned: int | None = None
    unplayable: str | None = None
    sparkline: Sequence[Number] = ()


@dataclass(frozen=True)
class Runs:
    """All runs of the folder."""

    folder: str
    version: str
    runs: list[Row]


@dataclass(frozen=True)
class Session:
    """Who worked on a run from when on, in seconds since 1970, and with what."""

    started: float
    about: dict[str, Any]


@dataclass(frozen=True)
class Run(Row):
    """A run with its spec and its sessions."""

    spec: str = ""
    sessions: Sequence[Session] = ()


@dataclass(frozen=True)
class Curves:
    """Numbers of generations, by column; `generations` is how many are finished."""

    generations: int
    columns: dict[str, Numbers]


@dataclass(frozen=True)
class Bands:
    """Quantiles of the population's fitness; `read` is the share that was read so far."""

    read: float
    columns: dict[str, Numbers]


@dataclass(frozen=True)
class Worker:
    """What a worker did in a generation; `seconds` is the mean of an evaluation."""

    name: str
    evaluations: int
    seconds: Number
    busy: Number


@dataclass(frozen=True)
class Workers:
    """Who worked at the last finished generation, and how many evaluations failed in it."""

    generation: int | None
    failures: int
    workers: list[Worker]


@dataclass(frozen=True)
class Population:
    """Two numbers of everybody who played in a generation; `names` can be asked for."""

    generation: int
    evaluations: int
    failures: int
    names: list[str]
    x: Numbers
    y: Numbers
    individual: list[str]
    champion: str


@dataclass(frozen=True)
class Ancestor:
    """A step of a lineage: the gene that was added, how it did, and what that gained."""

    id: str
    generation: int
    seed: int | None
    sigma: Number
    operator: str | None
    episodes: int
    mean: Number
    gain: Number


@dataclass(frozen=True)
class Branches:
    """Others who had children, but whose line does not lead to the individual."""

    id: list[str]
    generation: list[int]
    mean: Numbers
    parent: list[str]
    parent_generation: list[int]
    parent_mean: Numbers


@dataclass(frozen=True)
class Lineage:
    """From the root to an individual; what is known fills in while `read` is below 1."""

    individual: str
    read: float
    ancestors: list[Ancestor]
    branches: Branches


@dataclass(frozen=True)
class Root:
    """What a genome begins with: a birth from a seed, or weights as they are."""

    type: str
    seed: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Gene:
    """A gene, and who got it."""

    id: str
    generation: int
    seed: int
    sigma: Number
    operator: str


@dataclass(frozen=True)
class Episode:
    """An episode that was played in the run: `end` is t, l or c as in the store, or empty."""

    generation: int
    phase: int
    number: int
    score: Number
    steps: int
    frames: int
    end: str


@dataclass(frozen=True)
class Individual:
    """An individual: its genome, and how it did."""

    id: str
    generation: int
    parent: str | None
    root: Root
    genes: list[Gene]
    episodes: list[Episode]
    mean: Number
    failure: str | None
    children: int
    read: float
    unplayable: str | None


@dataclass(frozen=True)
class Weights:
    """The decoded weights of an individual: SHA-256, count, and how long decoding took."""

    digest: str
    weights: int
    seconds: Number


@dataclass(frozen=True)
class Card:
    """One of the best genomes."""

    run: str
    name: str
    title: str
    task: str
    algorithm: str
    id: str
    generation: int
    elite: Number
    genes: int
    unplayable: str | None


@dataclass(frozen=True)
class Gallery:
    """The best genomes, of `total` champions, and which tasks there are."""

    tasks: list[str]
    total: int
    cards: list[Card]


@dataclass(frozen=True)
class Problem:
    """Why there is no answer, in a sentence."""

    detail: str
