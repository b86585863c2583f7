"""A policy's settings that the task decides: what it sees, and how many outputs it has."""

import math
from collections.abc import Mapping
from typing import Any

from germline import policies
from germline.errors import InputError
from germline.policies.protocols import PolicySpec
from germline.policies.registry import has_setting
from germline.tasks.spaces import Space


def fit(name: str, settings: Mapping[str, Any], space: Space | None) -> PolicySpec:
    """Make a policy's settings, those that are left out taken from the task."""
    chosen = dict(settings)
    if space is not None:
        if name not in policies.names():
            policies.make(name, {})  # says what is wrong with the name
        wanted = {
            "inputs": math.prod(space.observation),
            "outputs": space.outputs,
            "actions": space.outputs,
            "head": space.head,
            "observation": space.observation,
        }
        for setting, value in wanted.items():
            if value is not None and has_setting(name, setting):
                chosen.setdefault(setting, value)
    spec = policies.make(name, chosen)
    if space is not None:
        check(spec, space)
    return spec


def check(spec: PolicySpec, space: Space) -> None:
    """Refuse a policy that does not fit a task."""
    name = policies.registry.name_of(spec)
    seen = getattr(spec, "observation", space.observation)
    if seen != space.observation:
        given, wanted = list(seen), list(space.observation)
        hint = ""
        if given == [math.prod(wanted)]:
            hint = "; the wrapper FlattenObservation makes one row of it"
        raise InputError(f"policy {name}: sees {given}, the task shows {wanted}{hint}")
    outputs = getattr(spec, "outputs", getattr(spec, "actions", space.outputs))
    if outputs != space.outputs:
        raise InputError(f"policy {name}: has {outputs} outputs, the task takes {space.outputs}")
    head = getattr(spec, "head", space.head)
    if head != space.head:
        kinds = {None: "discrete", "continuous": "continuous"}
        raise InputError(
            f"policy {name}: head: is {kinds[head]}, the task's actions are {kinds[space.head]}"
        )
