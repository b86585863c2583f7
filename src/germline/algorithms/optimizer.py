"""The optimizers of optax by name, and what they remember as plain data."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax

from germline.errors import InputError, told
from germline.settings import nearest

Options = dict[str, bool | int | float]


class Array(msgspec.Struct, frozen=True, array_like=True):
    """An array as plain data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Memory = tuple[Array, ...]  # what an optimizer remembers; empty before the first step


def make(name: str, options: Options, rate: float, decay: float) -> optax.GradientTransformation:
    """Give one of optax's; its learning rate shrinks by the factor `decay` in every step."""
    return _made(name, tuple(sorted(options.items())), rate, decay)


def step(
    optimizer: optax.GradientTransformation,
    memory: Memory,
    theta: np.ndarray[Any, np.dtype[np.float32]],
    descent: np.ndarray[Any, np.dtype[np.float32]],
) -> tuple[jax.Array, Memory]:
    """Give weights [params] after a step against `descent` [params], and the memory after it."""
    with jax.numpy_dtype_promotion("standard"):
        fresh = optimizer.init(theta)
    leaves, form = jax.tree.flatten(fresh)
    before = [_unpacked(array) for array in memory]
    if [m.shape for m in before] == [np.shape(leaf) for leaf in leaves]:
        leaves = before  # otherwise a fork has changed the optimizer, which begins anew
    moved, after = _update(optimizer, form, leaves, jnp.asarray(descent), jnp.asarray(theta))
    return moved, tuple(_packed(leaf) for leaf in after)


@lru_cache(maxsize=64)
def _made(
    name: str, options: tuple[tuple[str, Any], ...], rate: float, decay: float
) -> optax.GradientTransformation:
    """The same for the same settings, so that its steps are compiled once."""
    known = [n for n in dir(optax) if n.islower() and not n.startswith("_")]
    make = getattr(optax, name, None) if name in known else None
    if make is None:
        raise InputError(f"optimizer: {name!r} is not one of optax's; {nearest(name, known)}")
    try:
        made = make(learning_rate=lambda count: rate * decay**count, **dict(options))
        with jax.numpy_dtype_promotion("standard"):  # some need more than a gradient
            memory = made.init(np.zeros(2, np.float32))
            _, memory = made.update(np.ones(2, np.float32), memory, np.zeros(2, np.float32))
            _ = [_packed(leaf) for leaf in jax.tree.leaves(memory)]
    except Exception as error:
        raise InputError(f"optimizer: optax.{name} cannot be made: {told(error)}") from None
    if not isinstance(made, optax.GradientTransformation):
        raise InputError(f"optimizer: optax.{name} is not an optimizer")
    return made


@partial(jax.jit, static_argnames=("optimizer", "form"))
def _update(
    optimizer: optax.GradientTransformation,
    form: Any,  # noqa: ANN401 - a tree's structure
    leaves: list[jax.Array],
    gradient: jax.Array,
    theta: jax.Array,
) -> tuple[jax.Array, list[jax.Array]]:
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = optimizer.update(gradient, jax.tree.unflatten(form, leaves), theta)
        return optax.apply_updates(theta, updates), jax.tree.leaves(memory)


def _packed(leaf: jax.Array) -> Array:
    array = np.asarray(leaf)
    return Array(str(array.dtype), array.shape, array.tobytes())


def _unpacked(array: Array) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.data, array.dtype).reshape(array.shape)
