"""Points with labels to be learned by heart: noise, or arrays of yours that are known by name.

@tasks.dataset("digits")
def digits():
    return inputs, labels        # [points, ...] and whole numbers from 0 [points]
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from germline import draws
from germline import settings as written
from germline.draws import Purpose
from germline.errors import InputError, told
from germline.genome import Name, check_type
from germline.noise import Stream, reference_noise

MOST_NUMBERS = 2**28  # of all points together
MOST_CLASSES = 4096

Title = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Make = Callable[[], tuple[Any, Any]]
M = TypeVar("M", bound=Make)

_registry: dict[str, Make] = {}


class Points(NamedTuple):
    """Inputs [points, ...] of float32, uint8 or int8, and their labels [points] of int32."""

    inputs: np.ndarray
    labels: np.ndarray


def register(name: str) -> Callable[[M], M]:
    """Make a function that gives (inputs, labels) known under a name, as a decorator."""
    check_type("dataset name", name, Name)

    def keep(make: M) -> M:
        written.keep("dataset", name, make, _registry)
        find.cache_clear()
        return make

    return keep


def maker(name: object) -> Make | None:
    """Give the function that was registered under a name; None if there is none."""
    return _registry.get(name) if isinstance(name, str) else None


def home(name: object) -> str | None:
    """Give the module that registered a dataset; None if there is no such dataset."""
    return written.home(name, _registry)


@lru_cache(maxsize=4)
def noise(seed: int, count: int, shape: tuple[int, ...], classes: int, dtype: str) -> Points:
    """Points of Gaussian noise with random labels, the same on every machine.

    They have mean 0 and standard deviation 1, and as int8, which policies take as 1/128, 32.
    """
    size = count * int(np.prod(shape, dtype=np.int64))
    z = reference_noise(seed, Stream.POINTS, 0, size).reshape(count, *shape)
    if dtype == "int8":
        z = np.clip(32 * z, -127, 127).astype(np.int8)
    lots = draws.draw(seed, Purpose.LABEL, 0, np.arange(count))
    return _kept(z, draws.below(classes, lots).astype(np.int32))


@lru_cache(maxsize=4)
def find(name: str) -> Points:
    """Give the arrays of a registered function; refused if they are no points with labels."""
    about = f"task memorize: data: {name}"
    if name not in _registry:
        hint = "name its module in imports"
        if _registry:
            hint = written.nearest(name, sorted(_registry))
        raise InputError(f"{about} is not registered; {hint}")
    try:
        inputs, labels = (np.asarray(part) for part in _registry[name]())
    except (Exception, SystemExit) as error:
        raise InputError(f"{about}: {told(error)}") from None
    if inputs.ndim < 2 or labels.shape != inputs.shape[:1] or not inputs.size:
        shapes = f"{list(inputs.shape)} and {list(labels.shape)}"
        raise InputError(f"{about}: expected [points, ...] and [points], got {shapes}")
    if inputs.size > MOST_NUMBERS:
        raise InputError(f"{about}: {inputs.size:,} numbers, {MOST_NUMBERS:,} are allowed")
    if inputs.dtype.kind not in "biuf":
        raise InputError(f"{about}: inputs are numbers, not {inputs.dtype}")
    if inputs.dtype not in (np.uint8, np.int8):
        with np.errstate(over="ignore"):
            inputs = inputs.astype(np.float32)
        if not np.isfinite(inputs).all():
            raise InputError(f"{about}: some inputs are not finite")
    whole = np.issubdtype(labels.dtype, np.integer)
    if not whole or labels.min() < 0 or labels.max() >= MOST_CLASSES:
        given = f"{labels.min()} to {labels.max()}" if whole else labels.dtype
        wanted = f"whole numbers from 0 to {MOST_CLASSES - 1}"
        raise InputError(f"{about}: labels are {wanted}, not {given}")
    return _kept(inputs.copy(), labels.astype(np.int32))


def _kept(inputs: np.ndarray, labels: np.ndarray) -> Points:
    """Arrays that nobody changes, since they are handed out again."""
    inputs.flags.writeable = labels.flags.writeable = False
    return Points(inputs, labels)
