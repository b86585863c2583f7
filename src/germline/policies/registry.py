"""Names to settings classes, and back from a genome's reference to a layout."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from germline import settings as written
from germline.errors import InputError, shorten
from germline.genome import Name, PolicyRef, Setting, check_type
from germline.layout import Layout
from germline.policies.protocols import PolicySpec

Kind = TypeVar("Kind", bound=type)

_registry: dict[str, type[PolicySpec]] = {}


def register(name: str) -> Callable[[Kind], Kind]:
    """Make a class of settings, or of Equinox modules, known under a name, as a decorator."""
    check_type("policy name", name, Name)

    def keep(kind: Kind) -> Kind:
        known = _registry.get(name)
        if known is not None and kind not in (known, getattr(known, "kind", None)):
            raise ValueError(f"policy {name!r} is registered already, as {known}")
        _registry[name] = known or _settings(name, kind)
        return kind

    return keep


def _settings(name: str, kind: type) -> type[PolicySpec]:
    if issubclass(kind, msgspec.Struct):
        return cast("type[PolicySpec]", kind)
    import equinox as eqx

    from germline.policies.equinox_modules import settings_of

    if issubclass(kind, eqx.Module):
        if not hasattr(kind, "initial_carry"):
            raise TypeError(
                f"policy {name!r}: {kind.__name__} needs initial_carry(), what it remembers at the "
                "start, () for nothing; and __call__(obs, carry) gives (outputs, carry)"
            )
        return settings_of(name, kind)
    raise TypeError(f"policy {name!r}: {kind} is neither a msgspec.Struct nor an equinox.Module")


def names() -> list[str]:
    """Give the registered names in alphabetical order."""
    return sorted(_registry)


def home(name: str) -> str | None:
    """Give the module that registered a policy; None if there is no such policy."""
    kind: Any = _registry.get(name)
    return None if kind is None else str(getattr(kind, "kind", kind).__module__)


def has_setting(name: str, setting: str) -> bool:
    """Say whether a registered policy has a setting of this name."""
    return setting in written.fields(_registry[name])


def name_of(spec: PolicySpec) -> str:
    """Give the name that settings are registered under."""
    for name, kind in _registry.items():
        if type(spec) is kind:
            return name
    raise InputError(
        f"policy: {shorten(repr(spec))} is not the settings of a registered policy; "
        "give what policies.make() gives for its name"
    )


def make(name: str, settings: Mapping[str, Setting]) -> PolicySpec:
    """Build and check a policy's settings; an error names the field."""
    kind = written.lookup("policy", name, _registry)
    return written.convert(settings, kind, f"policy {name}: settings: ")


def reference(name: str, spec: PolicySpec) -> PolicyRef:
    """Give what a genome keeps of a policy: its name, its settings, the digest of its layout.

    Settings that are None by default and left so are not kept, so that a policy can gain one
    without changing ids.
    """
    fields = msgspec.structs.fields(cast("msgspec.Struct", spec))
    optional = {field.name for field in fields if field.default is None}
    values = ((f.name, getattr(spec, f.name)) for f in fields)
    kept = {k: v for k, v in values if v is not None or k not in optional}
    # Lists, as a file gives them back: a reference read from one is equal to that which made it.
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()}
    return PolicyRef(name, _layout(name, spec).digest, settings)


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
