"""The registered policies: settings, the layout of weights that they give, and networks that play.

There are two ways to add one. An Equinox module is registered as it is (`modules.py`). A network
that is described once for all arithmetics is a msgspec struct of settings with the methods of
`protocols.Network`; `dqn.py` is an example.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from germline.policies.conv import Conv
from germline.policies.conv_lstm import ConvLstm
from germline.policies.dqn import Dqn
from germline.policies.ensemble import Ensemble
from germline.policies.gru import Gru
from germline.policies.memory import Memory
from germline.policies.mlp import Mlp
from germline.policies.protocols import Layers, Network, Policy, PolicySpec
from germline.policies.registry import layout_of, make, names, reference, register
from germline.policies.steps import exact

if TYPE_CHECKING:
    from germline.policies.conformance import check as check
    from germline.policies.context import Context as Context
    from germline.policies.networks import build as build
    from germline.policies.shared import siblings as siblings

register("conv")(Conv)
register("conv-lstm")(ConvLstm)
register("dqn")(Dqn)
register("ensemble")(Ensemble)
register("gru")(Gru)
register("memory")(Memory)
register("mlp")(Mlp)

# Imported on first use: they need JAX, and looking at a genome does not.
_HOMES = {"build": "networks", "check": "conformance", "Context": "context", "siblings": "shared"}

__all__ = [  # noqa: RUF022 - in the order of use
    "Policy",
    "PolicySpec",
    "Network",
    "Layers",
    "register",
    "names",
    "make",
    "exact",
    "reference",
    "layout_of",
    "Context",
    "build",
    "siblings",
    "check",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"germline.policies.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'germline.policies' has no attribute {name!r}")
