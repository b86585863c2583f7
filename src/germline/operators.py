"""The mutation operators by name. Pure data: `mutation.py` says what each does to the weights.

A gene spells its operator canonically: `gaussian`, `block:layer`, `renew:head`, `grow`,
`sparse:0.01`, `lowrank:4`.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import cast, get_args

from germline import bfloat16
from germline.errors import InputError
from germline.layout import MAX_WEIGHTS, BlockKind, Layout

MAX_RANK = 64
SPELLINGS = (
    "gaussian, block:layer|row|head, renew:layer|row|head, grow, sparse:P (0 < P <= 1), "
    "lowrank:R (1 to 64)"
)


@dataclass(frozen=True)
class Gaussian:
    """Every weight moves."""

    def __str__(self) -> str:
        return "gaussian"


@dataclass(frozen=True)
class Block:
    """One layer, row or head moves, the others stay."""

    kind: BlockKind

    def __str__(self) -> str:
        return f"block:{self.kind}"


@dataclass(frozen=True)
class Renew:
    """One layer, row or head is drawn anew, the others stay; so sizes do not grow with age."""

    kind: BlockKind

    def __str__(self) -> str:
        return f"renew:{self.kind}"


@dataclass(frozen=True)
class Grow:
    """The first head that is empty, all zeros, is drawn; when none is left, any one anew."""

    def __str__(self) -> str:
        return "grow"


@dataclass(frozen=True)
class Sparse:
    """Each weight moves with probability `share`."""

    share: float

    def __str__(self) -> str:
        return f"sparse:{self.share!r}"

    @property
    def threshold(self) -> int:
        """A weight moves when its word is below this: round(share · 2³²), from 1 to 2³²."""
        return round(self.share * 2**32)


@dataclass(frozen=True)
class Lowrank:
    """Every matrix moves by a sum of `rank` outer products, every vector as in `gaussian`."""

    rank: int

    def __str__(self) -> str:
        return f"lowrank:{self.rank}"


Operator = Gaussian | Block | Renew | Grow | Sparse | Lowrank


_BLOCKS: dict[str, type[Block | Renew]] = {"block": Block, "renew": Renew}


@lru_cache(maxsize=256)
def parse(text: str) -> Operator:
    """Read a spelling such as "sparse:0.01"; `str` of the result is the canonical one."""
    if len(text) > 40:
        raise InputError(f"operator: {text[:40]!r}... is not one of {SPELLINGS}")
    name, _, argument = text.partition(":")
    if text == "gaussian":
        return Gaussian()
    if text == "grow":
        return Grow()
    if name in _BLOCKS and argument in get_args(BlockKind):
        return _BLOCKS[name](cast(BlockKind, argument))
    if name == "sparse" and re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]{1,3})?", argument):
        share = float(argument)
        if share <= 1 and Sparse(share).threshold >= 1:
            return Sparse(share)
    if name == "lowrank" and re.fullmatch(r"[1-9][0-9]?", argument) and int(argument) <= MAX_RANK:
        return Lowrank(int(argument))
    raise InputError(f"operator: {text!r} is not one of {SPELLINGS}")


def is_lowrank(text: str) -> bool:
    """Whether a spelling is that of a low rank; "" stands for no operator."""
    return bool(text) and isinstance(parse(text), Lowrank)


def draws_anew(text: str) -> bool:
    """Whether a spelling is of one whose weights do not add up; "" stands for no operator."""
    return bool(text) and isinstance(parse(text), Renew | Grow)


@lru_cache(maxsize=256)
def check(operator: Operator, layout: Layout) -> None:
    """Refuse an operator that has no meaning for a network, or no room."""
    headed = operator in (Block("head"), Renew("head"), Grow())
    if headed and not any(t.heads for t in layout.tensors):
        raise InputError(f"operator: {operator} needs a network with heads; this one has none")
    if isinstance(operator, Lowrank):
        matrices = [t.matrices for t in layout.tensors if t.matrices is not None]
        for side in (1, 2):
            drawn = operator.rank * sum(shape[0] * shape[side] for shape in matrices)
            if drawn > MAX_WEIGHTS:
                raise InputError(
                    f"operator: {operator} would draw {drawn:,} numbers for this network, "
                    f"more than the {MAX_WEIGHTS:,} allowed"
                )


def scales(operator: Operator, sigma: float) -> tuple[float, float]:
    """(σ, s): what multiplies the noise, and for `lowrank` the sum, s = bf16(σ/√rank).

    Computed here, once, in Python floats, because a device would round the division its own way.
    """
    if isinstance(operator, Lowrank):
        return sigma, bfloat16.nearest(sigma / math.sqrt(operator.rank))
    return sigma, sigma
