"""Any Equinox module as a policy: its settings, its layout, and its weights from θ.

    @policies.register("tiny")
    class Tiny(eqx.Module):
        inner: eqx.nn.Linear
        outer: eqx.nn.Linear

        def __init__(self, inputs: int = 4, width: int = 16, outputs: int = 2, *, key):
            ...

        def __call__(self, obs, carry):
            return self.outer(jax.nn.tanh(self.inner(obs))), carry

        def initial_carry(self):
            return ()

The arguments of `__init__` are the settings that genomes keep. Every floating-point array in the
module is a tensor of θ, by its path: `inner/weight`. Matrices are born as 1/√fan_in · z; in θ their
outputs come last, in the module first, as in Equinox's own layers. Vectors, biases, and whatever
was not drawn at random, such as the ones of a LayerNorm, are born as zeros and added to what the
module was made with.
"""

import inspect
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.errors import InputError
from germline.layout import Layout, Tensor
from germline.policies.protocols import Policy, PolicySpec

_RESERVED = ("layout", "module", "kind", "forward", "observation", "steps", "shifts")


def settings_of(name: str, kind: type[eqx.Module]) -> type[PolicySpec]:
    """The struct of settings of a class of modules: what its `__init__` takes, except `key`."""
    fields: list[tuple[Any, ...]] = []
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        about = f"policy {name}: {parameter.name}"
        if parameter.name == "key":
            continue
        if parameter.name in _RESERVED:
            raise TypeError(f"{about}: is a name that policies use themselves")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{about}: any number of arguments cannot be kept in a genome")
        hint = _hint(kind, parameter)
        if not _keepable(hint):
            raise TypeError(
                f"{about}: a genome keeps int, bool, str and tuples of int or str, "
                f"not {'an argument without a type' if hint is parameter.empty else hint}"
            )
        default = () if parameter.default is parameter.empty else (parameter.default,)
        for value in default:
            try:
                msgspec.convert(value, hint, strict=True)
            except msgspec.ValidationError as error:
                raise TypeError(f"{about}: its default does not fit: {error}") from None
        fields.append((parameter.name, hint, *default))
    settings: Any = msgspec.defstruct(
        kind.__name__,
        fields,
        bases=(ModuleSettings,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": kind.__doc__, "kind": kind, "__annotations__": {}},
    )
    return settings


class ModuleSettings(msgspec.Struct, frozen=True):
    """The settings of a user's module."""

    kind: ClassVar[type[eqx.Module]]

    def layout(self) -> Layout:
        """Give one tensor for every floating-point array of the module."""
        return _plan(self).layout

    def module(self, weights: Mapping[str, jax.Array]) -> Policy:
        """Fill the module with weights {name: tensor}."""
        plan = _plan(self)
        filled = {}
        for name, leaf in plan.leaves.items():
            value = weights[name].reshape(leaf.shape[1:] + leaf.shape[:1])
            value = jnp.moveaxis(value, -1, 0) if leaf.ndim > 1 else value
            filled[plan.paths[name]] = (value + plan.made_with.get(name, 0)).astype(leaf.dtype)
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: filled.get(path, leaf), plan.template
        )


@dataclass(frozen=True)
class _Plan:
    """How θ fills a module: by tensor, the leaf and its path, and what is added to it."""

    template: Any
    layout: Layout
    paths: dict[str, Any]
    leaves: dict[str, jax.Array]
    made_with: dict[str, jax.Array]


@lru_cache(maxsize=64)
def _plan(settings: ModuleSettings) -> _Plan:
    # Shapes first: a size that is too large is refused before anything is allocated for it.
    try:
        shapes = eqx.filter_eval_shape(partial(_make, settings), jax.random.key(0))
    except jax.errors.ConcretizationTypeError:
        name = type(settings).__name__
        raise InputError(f"policy: {name}.__init__ must not look at the values of arrays") from None
    Layout(tuple(Tensor(name, leaf.shape or (1,)) for name, (_, leaf) in _leaves(shapes).items()))
    with jax.ensure_compile_time_eval():
        # Made twice: what differs was drawn at random, and its values are not kept.
        template, twin = (_make(settings, jax.random.key(seed)) for seed in (0, 1))
        named, others = _leaves(template), _leaves(twin)
        made_with = {n: x for n, (_, x) in named.items() if np.array_equal(x, others[n][1])}
    tensors = []
    for name, (_, leaf) in named.items():
        if leaf.ndim < 2 or name in made_with or name.rpartition("/")[2] == "bias":
            tensors.append(Tensor(name, (*leaf.shape[1:], *leaf.shape[:1]) or (1,), gain=0.0))
        else:
            fan_in = math.prod(leaf.shape[1:])
            tensors.append(Tensor(name, (*leaf.shape[1:], leaf.shape[0]), fan_in))
    return _Plan(
        template,
        Layout(tuple(tensors)),
        {name: path for name, (path, _) in named.items()},
        {name: leaf for name, (_, leaf) in named.items()},
        made_with,
    )


def _make(settings: ModuleSettings, key: jax.Array) -> Any:  # noqa: ANN401 - a user's module
    kind = type(settings).kind
    arguments = {name: getattr(settings, name) for name in settings.__struct_fields__}
    if "key" in inspect.signature(kind.__init__).parameters:
        arguments["key"] = key
    return kind(**arguments)


def _leaves(module: Any) -> dict[str, tuple[Any, Any]]:  # noqa: ANN401 - a user's module
    """{name: (path, array or its shape)} of the weights, those of a layer side by side."""
    found: dict[str, tuple[Any, Any]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(module)[0]:
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or name in found:
            odd = "has a name twice" if name in found else f"is {leaf.dtype}, not real"
            raise InputError(f"policy: array {name!r} {odd}")
        found[name] = path, leaf
    first: dict[str, int] = {}
    for name in found:
        first.setdefault(Tensor(name, (1,)).layer, len(first))
    return dict(sorted(found.items(), key=lambda item: first[Tensor(item[0], (1,)).layer]))


def _hint(kind: type, parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - any annotation
    """The type of one argument; others may name what only type checkers know."""
    hint = parameter.annotation
    if not isinstance(hint, str):
        return hint
    holder = type("Holder", (), {"__annotations__": {parameter.name: hint}})
    initialise = next(vars(c)["__init__"] for c in kind.__mro__ if "__init__" in vars(c))
    try:
        names = getattr(initialise, "__globals__", {})
        return typing.get_type_hints(holder, globalns=names, include_extras=True)[parameter.name]
    except NameError:
        return hint


def _keepable(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    if typing.get_origin(hint) is typing.Annotated:
        return _keepable(typing.get_args(hint)[0])
    if typing.get_origin(hint) is typing.Literal:
        return all(type(value) in (int, str, bool) for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return all(part is ... or part in (int, str) for part in typing.get_args(hint))
    return hint in (int, bool, str)
