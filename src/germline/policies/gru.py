"""A small recurrent network with gated units (Cho et al. 2014)."""

from typing import Annotated

import msgspec
import numpy as np

from germline.layout import Layout, layer
from germline.policies.mlp import Width
from germline.policies.protocols import Array, Carry, Head, Layers, ObservationNormaliser


class Gru(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gated recurrent units between an observation and the outputs."""

    inputs: Width = 4
    units: Annotated[int, msgspec.Meta(ge=1, le=2**14)] = 32
    outputs: Width = 2
    head: Head = None
    normalise: ObservationNormaliser = None

    @property
    def observation(self) -> tuple[int, ...]:
        """One number per input."""
        return (self.inputs,)

    def layout(self) -> Layout:
        """Give the two gates, the candidate and out; each sees the input, then the state."""
        seen = self.inputs + self.units
        return Layout(
            (
                *layer("gates", (seen, 2 * self.units)),
                *layer("candidate", (seen, self.units)),
                *layer("out", (self.units, self.outputs), gain=0.1),
            )
        )

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] and state [units] to [outputs] and the next state."""
        import jax.numpy as jnp
        from jax.nn import sigmoid

        x, state = net.observe(obs), carry
        gates = sigmoid(net.linear("gates", jnp.concatenate([x, state.astype(x.dtype)])))
        reset, update = jnp.split(gates, 2)
        seen = jnp.concatenate([x, (reset * state).astype(x.dtype)])
        candidate = jnp.tanh(net.linear("candidate", seen))
        state = update * state + (1 - update) * candidate
        y = net.linear("out", state.astype(x.dtype))
        return net.output("out", y, self.head), state

    def initial_carry(self) -> Carry:
        """A state of zeros [units]."""
        return np.zeros(self.units, np.float32)
