"""Many small networks of which one speaks at a time."""

from typing import Annotated

import msgspec

from germline.layout import Layout
from germline.policies.mlp import Hidden, Width, perceive, perceptron
from germline.policies.protocols import Array, Carry, Head, Layers, ObservationNormaliser
from germline.policies.steps import Shifts, Steps, stepped


class Ensemble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Perceptrons with an importance output each; the one with the highest speaks.

    A `block:head` mutation changes one member and leaves what the others know untouched.
    """

    members: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 16
    inputs: Width = 4
    hidden: Hidden = (16,)
    outputs: Width = 2
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
        return stepped(Layout(tensors), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] to the [outputs] of the most important member."""
        last, y = perceive(net, net.observe(obs), len(self.hidden))  # [members, outputs + 1]
        speaker = y[:, -1].argmax()
        return net.output(last, y[speaker, :-1], self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered."""
        return ()
