"""Networks in floating point: float32, or bfloat16 products added in float32."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from germline.policies.arithmetic import gpu_kernels
from germline.policies.arithmetic.padding import Padding
from germline.policies.arithmetic.patches import padded, patches
from germline.policies.protocols import Activation, Head

_ACTIVATIONS: Mapping[Activation, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "linear": lambda y: y,
}
_OBSERVED = {"uint8": 1 / 255, "int8": 1 / 128}
_FAR = 5.0  # normalised observations are clipped to this size


class Factored(eqx.Module):
    """A matrix as base + leftᵀ·right, never multiplied out: `lowrank` siblings share the base.

    base [rows, columns], perhaps turned, left [rank, rows], right [rank, columns]; with heads all
    have one axis more in front.
    """

    base: "jax.Array | Turned"
    left: jax.Array
    right: jax.Array


class Turned(eqx.Module):
    """A matrix as [outputs, inputs], the way accelerators read it fastest for one observation."""

    weight: jax.Array


class Statistics(eqx.Module):
    """What a layer's inputs are normalised by, one number per channel."""

    mean: jax.Array
    std: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        """x with mean 0 and standard deviation 1."""
        return (x - self.mean) / self.std


class FloatLayers(eqx.Module):
    """The weights of one individual, with which its network computes.

    `matrices` are [inputs, outputs], of convolutions too, and [heads, inputs, outputs] with heads,
    unless they are turned; `vectors` are all other tensors. `statistics` are by layer, those of
    observations under "".
    """

    matrices: Mapping[str, "Matrix"]
    vectors: Mapping[str, jax.Array]
    statistics: Mapping[str, Statistics]

    @property
    def dtype(self) -> jnp.dtype:
        """What is multiplied; sums are float32."""
        leaves = jax.tree.leaves(self.matrices)
        return leaves[0].dtype if leaves else jnp.dtype(jnp.float32)

    def observe(self, obs: jax.Array) -> jax.Array:
        """Pixels (uint8) become 0...1, int8 becomes -1...1, other numbers stay.

        Statistics are those of observations as they come, so they do both at once.
        """
        x = obs.astype(jnp.float32)
        if "" in self.statistics:
            x = jnp.clip(self.statistics[""](x), -_FAR, _FAR)
        else:
            x = x * _OBSERVED.get(str(obs.dtype), 1.0)
        return x.astype(self.dtype)

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        """Products and bias; a normalised layer adds its bias after normalising."""
        return self._biased(name, _product(x, self.matrices[f"{name}/weight"]))

    def convolve(
        self, name: str, x: jax.Array, window: tuple[int, int], padding: Padding
    ) -> jax.Array:
        """Products of every patch, and bias."""
        y = _convolved(x, self.matrices[f"{name}/weight"], window, padding)
        return self._biased(name, y)

    def hidden(self, name: str, y: jax.Array, activation: Activation = "relu") -> jax.Array:
        """Normalise if the layer does, then activate."""
        if f"{name}/gain" in self.vectors:
            scaled = self.statistics[name](y) * (1 + self.vectors[f"{name}/gain"])
            y = scaled + self.vectors[f"{name}/bias"]
        return _ACTIVATIONS[activation](y).astype(self.dtype)

    def output(self, name: str, y: jax.Array, head: Head) -> jax.Array:
        """Scores as they are; continuous values clipped to [-1, 1]."""
        return jnp.clip(y, -1, 1) if head == "continuous" else y

    def values(self, name: str) -> jax.Array:
        """A tensor that is read, not multiplied with."""
        return self.vectors[name]

    def _biased(self, name: str, y: jax.Array) -> jax.Array:
        return y if f"{name}/gain" in self.vectors else y + self.vectors[f"{name}/bias"]


Matrix = jax.Array | Factored | Turned


def _convolved(
    x: jax.Array, weight: Matrix, window: tuple[int, int], padding: Padding
) -> jax.Array:
    """Sums of products of every patch; on a GPU that can, without laying patches out."""
    factors, matrix = None, weight
    if isinstance(weight, Factored):
        factors, matrix = (weight.left, weight.right), weight.base
    if isinstance(matrix, Turned) and matrix.weight.ndim == 2 and gpu_kernels.here():
        outputs, inputs = matrix.weight.shape
        rank = 0 if factors is None else factors[0].shape[0]
        if gpu_kernels.suits(x.dtype, inputs, outputs, rank):
            return gpu_kernels.convolve(
                padded(x, *window, padding), matrix.weight, *window, factors
            )
    return _product(patches(x, *window, padding), weight)


def _product(x: jax.Array, weight: Matrix) -> jax.Array:
    if isinstance(weight, Turned):
        return dot(settled(x), jnp.swapaxes(weight.weight, -1, -2))
    if isinstance(weight, Factored):
        inner = dot(x, jnp.swapaxes(weight.left, -1, -2)).astype(x.dtype)
        return _product(x, weight.base) + dot(inner, weight.right)
    return dot(x, weight)


def settled(x: jax.Array) -> jax.Array:
    """The same, to be computed once on accelerators and not again for each output it is fused into.

    Only a single observation is multiplied so that XLA would do that.
    """
    if x.ndim > 1 or jax.default_backend() == "cpu":
        return x
    found: jax.Array = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return found


def dot(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x [..., k] with a weight [k, out], or x [k] or [heads, k] with [heads, k, out]; in float32.

    The highest precision keeps accelerators from rounding float32 before they multiply it.
    """
    if weight.ndim == 2:
        subscripts = "...k,ko->...o"
    else:
        subscripts = "k,hko->ho" if x.ndim == 1 else "hk,hko->ho"
    highest, total = jax.lax.Precision.HIGHEST, jnp.float32
    return jnp.einsum(subscripts, x, weight, precision=highest, preferred_element_type=total)
