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
module is a tensor of θ, by its path: `inner/weight`. Matrices are born as 1/√fan_in · z, with the
outputs on the first axis, as in Equinox's own layers. Vectors and single numbers are born as zeros,
and added to what the module was made with if that is one number throughout, such as the ones of a
LayerNorm.
"""

import inspect
import math
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import msgspec
import numpy as np

from germline.layout import Layout, Tensor
from germline.policies.protocols import Policy, PolicySpec


def settings_of(name: str, kind: type[eqx.Module]) -> type[PolicySpec]:
    """The struct of settings of a class of modules: what its `__init__` takes, except `key`."""
    signature = inspect.signature(kind.__init__)
    hints = typing.get_type_hints(kind.__init__, include_extras=True)
    fields: list[tuple[Any, ...]] = []
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.name == "key":
            continue
        if hasattr(ModuleSettings, parameter.name):
            raise TypeError(f"policy {name}: an argument cannot be called {parameter.name}")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"policy {name}: *{parameter.name} cannot be kept in a genome")
        hint = hints.get(parameter.name)
        if not _keepable(hint):
            raise TypeError(
                f"policy {name}: {parameter.name}: a genome keeps int, bool, str and tuples of int "
                f"or str, not {hint if hint is not None else 'an argument without a type'}"
            )
        default = () if parameter.default is parameter.empty else (parameter.default,)
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
        return _layout(self)

    def module(self, weights: Mapping[str, jax.Array]) -> Policy:
        """Fill the module with weights {name: tensor}."""
        constants = _constants(self)
        filled = {
            path: (weights[name].reshape(leaf.shape) + constants[name]).astype(leaf.dtype)
            for name, (path, leaf) in _leaves(_template(self)).items()
        }
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: filled.get(path, leaf), _template(self)
        )


@lru_cache(maxsize=64)
def _template(settings: ModuleSettings, seed: int = 0) -> Any:  # noqa: ANN401 - a user's module
    kind = type(settings).kind
    arguments = {name: getattr(settings, name) for name in settings.__struct_fields__}
    with jax.ensure_compile_time_eval():
        if "key" in inspect.signature(kind.__init__).parameters:
            arguments["key"] = jax.random.key(seed)
        return kind(**arguments)


@lru_cache(maxsize=64)
def _constants(settings: ModuleSettings) -> dict[str, float]:
    """What each vector was made with, if that is one number throughout, else 0.

    Made twice, because a single number that was drawn at random must not pass for a constant.
    """
    twins = (_leaves(_template(settings, seed)) for seed in (0, 1))
    constants = {}
    for (name, (_, one)), (_, other) in zip(*(twin.items() for twin in twins), strict=True):
        values = np.unique(np.stack([one, other[1]]))
        constants[name] = float(values[0]) if one.ndim < 2 and values.size == 1 else 0.0
    return constants


@lru_cache(maxsize=64)
def _layout(settings: ModuleSettings) -> Layout:
    tensors = []
    for name, (_, leaf) in _leaves(_template(settings)).items():
        if leaf.ndim < 2:
            tensors.append(Tensor(name, leaf.shape or (1,), gain=0.0))
        else:
            tensors.append(Tensor(name, leaf.shape, fan_in=math.prod(leaf.shape[1:])))
    return Layout(tuple(tensors))


def _leaves(module: Any) -> dict[str, tuple[Any, jax.Array]]:  # noqa: ANN401 - a user's module
    """{name: (path, array)} of the weights, those of a layer side by side."""
    flat = jax.tree_util.tree_flatten_with_path(module)[0]
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): (path, leaf)
        for path, leaf in flat
        if eqx.is_inexact_array(leaf)
    }
    first: dict[str, int] = {}
    for name in named:
        first.setdefault(Tensor(name, (1,)).layer, len(first))
    return dict(sorted(named.items(), key=lambda item: first[Tensor(item[0], (1,)).layer]))


def _keepable(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    if typing.get_origin(hint) is typing.Annotated:
        return _keepable(typing.get_args(hint)[0])
    if typing.get_origin(hint) is typing.Literal:
        return all(type(value) in (int, str, bool) for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return all(part is ... or part in (int, str) for part in typing.get_args(hint))
    return hint in (int, bool, str)
