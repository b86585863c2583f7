"""A memory that answers with the most similar thing it holds."""

from typing import Annotated

import msgspec

from germline.layout import Layout, Tensor, layer
from germline.policies.mlp import Width
from germline.policies.protocols import Array, Carry, Head, Layers, ObservationNormaliser
from germline.policies.steps import Shifts, Steps, stepped


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Heads that each hold a vector and an answer; the head most similar to what is seen answers.

    Similarity is the inner product with the head's vector, plus the head's bias. A `block:head`
    mutation changes one memory and leaves the others as they are.
    """

    heads: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 128
    inputs: Width = 64
    outputs: Width = 10
    head: Head = None
    normalise: ObservationNormaliser = None
    steps: Steps = None
    shifts: Shifts = None

    @property
    def observation(self) -> tuple[int, ...]:
        """One number per input."""
        return (self.inputs,)

    def layout(self) -> Layout:
        """Give the heads' vectors and biases, then their answers: a score for every class."""
        # Answers are born as large as vectors, so that a mutation changes both at one pace.
        answers = Tensor("answer/value", (self.heads, self.outputs), self.inputs, heads=True)
        vectors = layer("vector", (self.inputs, 1), heads=self.heads)
        return stepped(Layout((*vectors, answers)), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] to the answer [outputs] of one head."""
        similarity = net.linear("vector", net.observe(obs))[:, 0]
        answer = net.values("answer/value")[similarity.argmax()]
        return net.output("answer", answer, self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered within an episode; the memories are weights."""
        return ()
