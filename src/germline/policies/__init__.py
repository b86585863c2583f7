"""The registered policies: settings, the layout of weights that they give, and networks that play.

There are two ways to add one. An Equinox module is registered as it is (`equinox_modules.py`). A
network that is described once for all arithmetics is a msgspec struct of settings with the methods
of `protocols.Network`; `mlp.py` is an example.

The modules in reading order:

    protocols        what a policy is, and what a network may ask of an arithmetic
    registry         names to settings, and back from a genome to a layout
    mlp              dense layers
    dqn              the network of "Deep Neuroevolution", for Atari
    conv             convolutions of any number and size
    conv_lstm        convolutions, then a long short-term memory
    gru              gated recurrent units
    memory           heads that each hold a vector and its answer
    ensemble         small networks of which one speaks at a time
    empty_heads      memories and members that are born empty
    arithmetic       the layers of all of these, in floats and in integers
    normalisation    statistics of observations, and virtual batch normalisation
    equinox_modules  any Equinox module as a policy
    building         from settings and weights to a policy that plays
    shared_products  siblings that are computed together
    conformance      the check that ours pass, and that users run on theirs
"""

from importlib import import_module
from typing import TYPE_CHECKING

from germline.policies.arithmetic.steps import exact
from germline.policies.conv import Conv
from germline.policies.conv_lstm import ConvLstm
from germline.policies.dqn import Dqn
from germline.policies.ensemble import Ensemble
from germline.policies.gru import Gru
from germline.policies.memory import Memory
from germline.policies.mlp import Mlp
from germline.policies.protocols import Layers, Network, Policy, PolicySpec
from germline.policies.registry import layout_of, make, names, reference, register

if TYPE_CHECKING:
    from germline.policies.building import build as build
    from germline.policies.conformance import check as check
    from germline.policies.normalisation import Context as Context
    from germline.policies.shared_products import siblings as siblings

register("conv")(Conv)
register("conv-lstm")(ConvLstm)
register("dqn")(Dqn)
register("ensemble")(Ensemble)
register("gru")(Gru)
register("memory")(Memory)
register("mlp")(Mlp)

# Imported on first use: they need JAX, and looking at a genome does not.
_HOMES = {
    "Context": "normalisation",
    "build": "building",
    "check": "conformance",
    "siblings": "shared_products",
}

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
