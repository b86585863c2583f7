"""Names to settings classes, and back from a genome's reference to a layout."""

import difflib
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, cast

import msgspec

from germline.errors import InputError, explain
from germline.genome import PolicyRef, Setting
from germline.layout import Layout


class PolicySpec(Protocol):
    """The settings of a policy: a frozen msgspec struct that knows its layout."""

    def layout(self) -> Layout:
        """Give the layout of the network's weights."""
        ...


Spec = TypeVar("Spec", bound=type[PolicySpec])

_registry: dict[str, type[PolicySpec]] = {}


def register(name: str) -> Callable[[Spec], Spec]:
    """Make a class of settings known under a name, as a decorator."""

    def keep(kind: Spec) -> Spec:
        if _registry.setdefault(name, kind) is not kind:
            raise ValueError(f"policy {name!r} is registered already, as {_registry[name]}")
        return kind

    return keep


def names() -> list[str]:
    """Give the registered names in alphabetical order."""
    return sorted(_registry)


def make(name: str, settings: Mapping[str, Setting]) -> PolicySpec:
    """Build and check a policy's settings; an error names the field."""
    if name not in _registry:
        near = difflib.get_close_matches(name, _registry, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}"
        raise InputError(f"policy: {name[:64]!r} is not registered; {hint}")
    kind = cast("type[msgspec.Struct]", _registry[name])
    fields = [field.name for field in msgspec.structs.fields(kind)]
    if unknown := sorted(settings.keys() - set(fields)):
        known = ", ".join(fields) or "none"
        raise InputError(
            f"policy {name}: settings: {unknown[0][:64]!r} is not one of its settings: {known}"
        )
    try:
        return msgspec.convert(dict(settings), _registry[name])
    except msgspec.ValidationError as error:
        raise InputError(f"policy {name}: settings: {explain(error)}") from None


def reference(name: str, spec: PolicySpec) -> PolicyRef:
    """Give what a genome keeps of a policy: its name, all settings, the digest of its layout."""
    return PolicyRef(name, _layout(name, spec).digest, msgspec.to_builtins(spec))


def layout_of(policy: PolicyRef) -> Layout:
    """Give the layout a genome was made for; refuse if this program's policy has another."""
    layout = _layout(policy.name, make(policy.name, policy.settings))
    if layout.digest != policy.layout:
        raise InputError(
            f"policy {policy.name}: layout: the genome says {policy.layout[:16]}, "
            f"these settings give {layout.digest[:16]}"
        )
    return layout


def _layout(name: str, spec: PolicySpec) -> Layout:
    try:
        return spec.layout()
    except InputError as error:
        raise InputError(f"policy {name}: settings: {error}") from None
