"""What a policy is, and what a network's description may ask of an arithmetic."""

from typing import Any, Literal, Protocol

from germline.layout import Layout
from germline.policies.arithmetic.padding import Padding

Activation = Literal["relu", "tanh", "elu", "linear"]
ObservationNormaliser = Literal["observations"] | None
VirtualNormaliser = Literal["virtual"] | None
Head = Literal["continuous"] | None  # None is discrete: one score per action, the highest is taken

# JAX arrays, tracers and numpy arrays alike, and trees of them.
Array = Any
Carry = Any


class Policy(Protocol):
    """A network with its weights. It sees one observation; `jax.vmap` makes it see many.

    The carry is what a recurrent network remembers between two observations of an episode; it
    keeps its structure, shapes and dtypes. Any Equinox module with these two methods is a policy.
    """

    def __call__(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Give the output for an observation: scores [actions], or values [outputs] in [-1, 1]."""
        ...

    def initial_carry(self) -> Carry:
        """Give the carry at the start of an episode."""
        ...


class PolicySpec(Protocol):
    """The settings of a policy: a frozen msgspec struct that knows its layout."""

    def layout(self) -> Layout:
        """Give the layout of the network's weights."""
        ...


class Layers(Protocol):
    """A network's weights in some arithmetic, with which `Network.forward` computes.

    x stands for activations, y for the sums a layer gives before its activation function.
    """

    def observe(self, obs: Array) -> Array:
        """Turn an observation into activations."""
        ...

    def linear(self, name: str, x: Array) -> Array:
        """x [inputs] → y [outputs]; with heads x [inputs] or [heads, inputs] → [heads, outputs]."""
        ...

    def convolve(self, name: str, x: Array, window: tuple[int, int], padding: Padding) -> Array:
        """x [height, width, in] → y [height', width', out]; the window is (kernel, stride)."""
        ...

    def hidden(self, name: str, y: Array, activation: Activation = "relu") -> Array:
        """Activations of a hidden layer."""
        ...

    def output(self, name: str, y: Array, head: Head) -> Array:
        """Scores as they are; continuous values clipped to [-1, 1]."""
        ...

    def values(self, name: str) -> Array:
        """A tensor that is read, not multiplied with."""
        ...


class Network(PolicySpec, Protocol):
    """A policy described once for all arithmetics: settings, layout and forward pass."""

    @property
    def observation(self) -> tuple[int, ...]:
        """The shape of an observation."""
        ...

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """The output for one observation, and the carry after it."""
        ...

    def initial_carry(self) -> Carry:
        """Give the carry at the start of an episode, as numpy arrays."""
        ...


class ExactNetwork(Network, Protocol):
    """A network that can also compute in integers, once its steps and shifts are chosen."""

    @property
    def head(self) -> Head:
        """What the outputs mean."""
        ...

    @property
    def steps(self) -> tuple[int, ...] | None:
        """One power of two per layer, the size of one integer step of its weights."""
        ...

    @property
    def shifts(self) -> tuple[int, ...] | None:
        """How many bits each layer's sums lose before they are clipped to 0...127."""
        ...
