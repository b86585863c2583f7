"""Many small networks of which one speaks at a time."""

from dataclasses import replace
from typing import Annotated

import msgspec

from germline.layout import Layout
from germline.policies.arithmetic.steps import Shifts, Steps, stepped
from germline.policies.empty_heads import Born, silenced
from germline.policies.mlp import Hidden, Width, perceive, perceptron
from germline.policies.protocols import Array, Carry, Head, Layers, ObservationNormaliser


class Ensemble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Perceptrons with an importance output each; the one with the highest speaks.

    A `block:head` mutation changes one member and leaves what the others know untouched. An
    ensemble that is `born` empty gains a member by every `grow` mutation.
    """

    members: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 16
    inputs: Width = 4
    hidden: Hidden = (16,)
    outputs: Width = 2
    born: Born = None
    head: Head = None
    normalise: ObservationNormaliser = None
    steps: Steps = None
    shifts: Shifts = None

    @property
    def observation(self) -> tuple[int, ...]:
        """One number per input."""
        return (self.inputs,)

    def layout(self) -> Layout:
        """Give dense1, dense2, ..., all with one head per member; the last output is importance."""
        tensors = perceptron(self.inputs, self.hidden, self.outputs + 1, heads=self.members)
        if self.born == "empty":
            tensors = tuple(replace(tensor, gain=0.0) for tensor in tensors)
        return stepped(Layout(tensors), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] to the [outputs] of the most important member."""
        last, y = perceive(net, net.observe(obs), len(self.hidden))  # [members, outputs + 1]
        importance = y[:, -1]
        if self.born == "empty":
            importance = silenced(importance, (y == 0).all(1))
        return net.output(last, y[importance.argmax(), :-1], self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered."""
        return ()
