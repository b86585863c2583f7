"""Networks in integers, as fast as floats: the same outputs on every machine, in any batch.

Every number is an integer of size at most 127, which float32, bfloat16 and int8 all hold. A sum of
at most 1,040 products of two of them is at most 1,040·127² = 16,774,160 < 2²⁴ in size, and so is
every partial sum, in whatever order a machine adds: float32 holds them all, and adding is exact. So
sums are cut into blocks of at most 1,040 products. The sums of blocks, and the bias, are added in
int32, whose range `steps.scales` has checked. Shifting right is floor division by a power of two.

Blocks may be kept as bfloat16 or int8, to read less memory; they are widened to float32 before they
are multiplied.

CPUs and accelerators have instructions that multiply int8 and add in int32, which is exact too:
"whole" matrices are multiplied so, in one piece. On a CPU that is faster than blocks of floats by a
fifth to three times for one network, and slower for many at once; on an accelerator it is the
fastest for both. Their inputs are padded with zeros to a multiple of 32: for fewer, or a number not
divisible by 4, XLA gave wrong sums on an NVIDIA H200. Multiplied as bfloat16, networks with heads
were rounded there.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from germline.layout import Layout
from germline.policies.arithmetic import gpu_kernels
from germline.policies.arithmetic.floats import dot, settled
from germline.policies.arithmetic.padding import Padding
from germline.policies.arithmetic.patches import padded, patches
from germline.policies.arithmetic.steps import LARGEST, Scale, check_observed, scales
from germline.policies.protocols import Activation, ExactNetwork, Head

Blocks = Literal["float32", "bfloat16", "int8", "whole"]
BLOCK = (2**24 - 1) // LARGEST**2  # 1,040
UNIT = 32  # inputs of a whole matrix are a multiple of this


class ExactLayers(eqx.Module):
    """The integer weights of one individual, with which its network computes.

    Matrices are cut into blocks [inputs, outputs]; whole ones are [outputs, inputs].
    """

    matrices: dict[str, tuple[jax.Array, ...]]
    biases: dict[str, jax.Array]
    tables: dict[str, jax.Array]
    scales: tuple[tuple[str, Scale], ...] = eqx.field(static=True)
    blocks: Blocks = eqx.field(static=True)

    @property
    def dtype(self) -> jnp.dtype:
        """What activations are kept as."""
        return jnp.dtype("int8" if self.blocks == "whole" else self.blocks)

    def observe(self, obs: jax.Array) -> jax.Array:
        """uint8 >> 1, or int8 with -128 taken as -127: integers of size at most 127."""
        kind = str(obs.dtype)
        check_observed(kind)
        x = obs >> 1 if kind == "uint8" else jnp.maximum(obs, -LARGEST)
        return x.astype(self.dtype)

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        """Σ w·x + b in int32."""
        if self.blocks == "whole":
            return self.biases[name] + _whole(settled(_filled(x, -1)), self.matrices[name][0])
        x = x.astype(jnp.float32)
        total, start = self.biases[name], 0
        for block in self.matrices[name]:
            stop = start + block.shape[-2]
            sums = dot(x[..., start:stop], block.astype(jnp.float32))
            total, start = total + sums.astype(jnp.int32), stop
        return total

    def convolve(
        self, name: str, x: jax.Array, window: tuple[int, int], padding: Padding
    ) -> jax.Array:
        """The same for every patch: a product, never an algorithm that transforms its inputs."""
        weight = self.matrices[name][0]
        inputs = window[0] ** 2 * x.shape[-1]
        suited = self.blocks == "whole" and gpu_kernels.suits(x.dtype, inputs, weight.shape[0])
        if suited and gpu_kernels.here():
            return self.biases[name] + gpu_kernels.convolve(
                padded(x, *window, padding), weight, *window
            )
        return self.linear(name, patches(x, *window, padding))

    def hidden(self, name: str, y: jax.Array, activation: Activation = "relu") -> jax.Array:
        """Shift right, which rounds down, and clip to 0...127."""
        return jnp.clip(y >> self._scale(name).shift, 0, LARGEST).astype(self.dtype)

    def output(self, name: str, y: jax.Array, head: Head) -> jax.Array:
        """Scores as int32; continuous values clipped to ±1, in steps of a power of two.

        The step is 2⁻²⁴ or larger, so that float32 holds every value.
        """
        if head is None:
            return y
        bits = -self._scale(name).sums
        return jnp.clip(y, -(1 << bits), 1 << bits).astype(jnp.float32) * jnp.float32(2.0**-bits)

    def values(self, name: str) -> jax.Array:
        """A tensor that is read, not multiplied with, as int32."""
        return self.tables[name]

    def _scale(self, name: str) -> Scale:
        return dict(self.scales)[name]


def exact_layers(
    spec: ExactNetwork, layout: Layout, weights: Mapping[str, jax.Array], blocks: Blocks
) -> ExactLayers:
    """Round weights {name: tensor} to integers, and cut matrices into blocks or turn them."""
    dtype = jnp.dtype("int8" if blocks == "whole" else blocks)
    found = scales(layout, spec)
    matrices, biases, tables = {}, {}, {}
    for tensor in layout.tensors:
        scale, theta = found[tensor.layer], weights[tensor.name]
        if tensor.name.endswith("/bias"):
            biases[tensor.layer] = _rounded(theta, scale.sums, scale.largest_bias, jnp.int32)
        elif scale.inputs:
            lead = tensor.shape[:1] if tensor.heads else ()
            flat = theta.reshape(*lead, scale.inputs, tensor.shape[-1])
            integers = _rounded(flat, scale.step, LARGEST, dtype)
            turned = jnp.swapaxes(_filled(integers, -2), -1, -2)
            matrices[tensor.layer] = (turned,) if blocks == "whole" else _cut(integers)
        else:
            tables[tensor.name] = _rounded(theta, scale.step, LARGEST, jnp.int32)
    return ExactLayers(matrices, biases, tables, tuple(found.items()), blocks)


def _rounded(theta: jax.Array, step: int, largest: int, dtype: jnp.dtype) -> jax.Array:
    """clip(rint(θ/2^step), ±largest).

    Dividing by a power of two changes only the exponent; where that overflows, clipping follows.
    """
    scaled = theta * jnp.float32(2.0**-step)
    return jnp.clip(jnp.rint(scaled), -largest, largest).astype(dtype)


def _filled(x: jax.Array, axis: int) -> jax.Array:
    """The same with zeros added along an axis, to a multiple of UNIT."""
    lacking = -x.shape[axis] % UNIT
    if not lacking:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, lacking)
    return jnp.pad(x, widths)


def _cut(integers: jax.Array) -> tuple[jax.Array, ...]:
    """A matrix [..., inputs, outputs] as blocks of about equal length, none longer than BLOCK."""
    inputs = integers.shape[-2]
    size = -(-inputs // -(-inputs // BLOCK))
    return tuple(integers[..., start : start + size, :] for start in range(0, inputs, size))


def _whole(x: jax.Array, turned: jax.Array) -> jax.Array:
    """x [..., inputs] with [outputs, inputs], or with heads as `floats.dot` has them, in int32."""
    if turned.ndim == 3:
        subscripts = "k,hok->ho" if x.ndim == 1 else "hk,hok->ho"
        return jnp.einsum(subscripts, x, turned, preferred_element_type=jnp.int32)
    return _single(x, turned) if x.ndim == 1 else _rows(x, turned)


def _rows(x: jax.Array, turned: jax.Array) -> jax.Array:
    return jnp.einsum("...k,ok->...o", x, turned, preferred_element_type=jnp.int32)


@custom_vmap
def _single(x: jax.Array, turned: jax.Array) -> jax.Array:
    """One row [inputs]: with a second one, of zeros, XLA takes a path that is 3 times as fast."""
    return _rows(jnp.stack([x, jnp.zeros_like(x)]), turned)[0]


@_single.def_vmap
def _several(
    size: int, batched: Sequence[bool], x: jax.Array, turned: jax.Array
) -> tuple[jax.Array, bool]:
    """Rows of several observations need no other; several networks are multiplied one by one."""
    if list(batched) == [True, False]:
        return _rows(x, turned), True
    places = [0 if flag else None for flag in batched]
    return jax.vmap(_rows, in_axes=places)(x, turned), True
