"""A memory that answers with the most similar thing it holds."""

from typing import Annotated, Literal

import msgspec

from germline.layout import Layout, Tensor, layer
from germline.policies.arithmetic.steps import Shifts, Steps, stepped
from germline.policies.empty_heads import Born, silenced
from germline.policies.mlp import Width
from germline.policies.protocols import Array, Carry, Head, Layers, ObservationNormaliser


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Heads that each hold a vector and an answer; the head most similar to what is seen answers.

    Similarity is the inner product with the head's vector, plus the head's bias; or the `cosine`,
    to which the length of a vector is nothing. A `block:head` mutation changes one memory and
    leaves the others as they are. A memory that is `born` empty knows nothing, and gains a head by
    every `grow` mutation.
    """

    heads: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 128
    inputs: Width = 64
    outputs: Width = 10
    similarity: Literal["cosine"] | None = None
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
        """Give the heads' vectors and biases, then their answers: a score for every class."""
        gain = 0.0 if self.born == "empty" else 1.0
        # Answers are born as large as vectors, so that a mutation changes both at one pace.
        answers = Tensor("answer/value", (self.heads, self.outputs), self.inputs, gain, heads=True)
        vectors = layer("vector", (self.inputs, 1), gain, heads=self.heads)
        if self.similarity == "cosine":
            shape = (self.heads, self.inputs)
            vectors = (Tensor("vector/value", shape, self.inputs, gain, heads=True),)
        return stepped(Layout((*vectors, answers)), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] to the answer [outputs] of one head."""
        x, answers = net.observe(obs), net.values("answer/value")
        if self.similarity == "cosine":
            similarity = _cosine(x, net.values("vector/value"))
        else:
            similarity = net.linear("vector", x)[:, 0]
        if self.born == "empty":
            similarity = silenced(similarity, (answers == 0).all(1))
        return net.output("answer", answers[similarity.argmax()], self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered within an episode; the memories are weights."""
        return ()


def _cosine(x: Array, vectors: Array) -> Array:
    """How far x [inputs] points the way of each of the vectors [heads, inputs], times |x|."""
    import jax.numpy as jnp

    from germline.policies.arithmetic.floats import dot

    lengths = jnp.sqrt((vectors * vectors).sum(1))
    return dot(x, vectors.T) / jnp.maximum(lengths, jnp.float32(2.0**-126))
