"""Observations a second of the paper's network on one core, against the same network in PyTorch.

    python benchmarks/forward.py [same|valid ...]

Every contestant gets uint8 frames as an emulator gives them. They take turns in bursts, and a
figure is the median of its bursts. Ratios are to PyTorch, and of exact to float arithmetic.
Needs torch: pip install 'germline[bench]'.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import jax  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from germline import mutation, policies  # noqa: E402

NETWORKS = 16
ROUNDS, SECONDS = 9, 0.15


class Torch(torch.nn.Module):
    """The same network as PyTorch users write it, with TensorFlow's padding if it is SAME."""

    def __init__(self, padding: str) -> None:
        super().__init__()
        self.pads = ((2, 2), (1, 2), (1, 1)) if padding == "same" else ((0, 0),) * 3
        shapes = ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        self.convolutions = torch.nn.ModuleList(torch.nn.Conv2d(*shape) for shape in shapes)
        self.dense = torch.nn.Linear(7744 if padding == "same" else 3136, 512)
        self.out = torch.nn.Linear(512, 18)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 [batch, 4, 84, 84] to [batch, 18]."""
        x = frames.float() / 255
        for (before, after), convolution in zip(self.pads, self.convolutions, strict=True):
            if after:
                x = torch.nn.functional.pad(x, (before, after, before, after))
            x = torch.relu(convolution(x))
        return self.out(torch.relu(self.dense(x.flatten(1))))

    def take(self, weights: dict[str, np.ndarray]) -> "Torch":
        """Use Germline's weights, so that both compute the same numbers."""
        layers = dict(zip(("conv1", "conv2", "conv3"), self.convolutions, strict=True))
        channels, side = 64, 11 if self.pads[0][0] else 7
        for name, layer in (layers | {"dense": self.dense, "out": self.out}).items():
            weight = weights[f"{name}/weight"]
            if name == "dense":  # rows in the order (channel, row, column)
                weight = weight.reshape(side, side, channels, -1).transpose(2, 0, 1, 3)
                weight = weight.reshape(-1, weight.shape[-1])
            ordered = weight.transpose(3, 2, 0, 1) if weight.ndim == 4 else weight.T
            layer.weight.data = torch.from_numpy(np.array(ordered))
            layer.bias.data = torch.from_numpy(np.array(weights[f"{name}/bias"]))
        return self


def contestants(padding: str) -> dict[str, dict[str, tuple[int, Callable[[], object]]]]:
    """{row: {contestant: (observations a call, the call)}}."""
    spec = policies.exact(policies.make("dqn", {"padding": padding}))
    layout = spec.layout()
    frames = np.random.default_rng(0).integers(0, 256, (NETWORKS, 84, 84, 4), dtype=np.uint8)
    planes = torch.from_numpy(np.array(frames.transpose(0, 3, 1, 2)))
    birth = jax.jit(lambda seed: mutation.birth(seed, layout))
    thetas = np.stack([birth(np.uint32(seed)) for seed in range(NETWORKS)])
    rivals = [Torch(padding).take(layout.unflatten(theta)).eval() for theta in thetas]
    names, stacked = torch.func.stack_module_state(rivals)
    together = torch.func.vmap(
        lambda p, b, x: torch.func.functional_call(rivals[0], (p, b), (x[None],))[0]
    )

    play = jax.jit(lambda policy, obs: policy(obs, ())[0])
    play_many = jax.jit(jax.vmap(play, (None, 0)))
    play_each = jax.jit(jax.vmap(play))
    populations = {
        arithmetic: jax.vmap(lambda theta, a=arithmetic: policies.build(spec, theta, a))(thetas)
        for arithmetic in ("float32", "exact")
    }
    singles = {
        arithmetic: [policies.build(spec, theta, arithmetic) for theta in thetas]
        for arithmetic in populations
    }
    found = np.asarray(play_many(singles["float32"][0], frames))
    with torch.inference_mode():
        np.testing.assert_allclose(found, rivals[0](planes).numpy(), rtol=1e-3, atol=1e-4)

    def ours(arithmetic: str, row: str) -> Callable[[], object]:
        one, many = singles[arithmetic], populations[arithmetic]
        if row == "looped":
            return lambda: [play(p, frames[i]) for i, p in enumerate(one)]
        if row == "vmapped":
            return lambda: play_each(many, frames)
        batch = frames[: int(row)]
        return lambda: play(one[0], batch[0]) if row == "1" else play_many(one[0], batch)

    def theirs(row: str) -> Callable[[], object]:
        if row == "looped":
            return lambda: [r(planes[i : i + 1]) for i, r in enumerate(rivals)]
        if row == "vmapped":
            return lambda: together(names, stacked, planes)
        return lambda: rivals[0](planes[: int(row)])

    return {
        row: {
            "PyTorch": (size, theirs(row)),
            "float32": (size, ours("float32", row)),
            "exact": (size, ours("exact", row)),
        }
        for row, size in (("1", 1), ("4", 4), ("16", 16), ("looped", 16), ("vmapped", 16))
    }


def burst(call: Callable[[], object]) -> float:
    """Calls a second, over a short while."""
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < SECONDS or count < 2:
        jax.block_until_ready(call())
        count += 1
    return count / passed


def main() -> None:
    """Print one row per batch and network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paddings", nargs="*", default=["same", "valid"])
    torch.set_num_threads(1)
    for padding in parser.parse_args().paddings:
        print(f"{padding}: observations a second, one core")
        columns = ("PyTorch", "float32", "exact", "float/PyTorch", "exact/PyTorch", "exact/float")
        print(f"{'':<26}" + "".join(f"{column:>15}" for column in columns))
        for row, players in contestants(padding).items():
            with torch.inference_mode():
                rates: dict[str, list[float]] = {name: [] for name in players}
                for _ in range(ROUNDS + 1):
                    for name, (size, call) in players.items():
                        rates[name].append(size * burst(call))
            torch_rate, floats, exact = (statistics.median(r[1:]) for r in rates.values())
            title = f"16 networks, {row}" if row.isalpha() else f"one network, batch {row}"
            figures = f"{torch_rate:>15,.0f}{floats:>15,.0f}{exact:>15,.0f}"
            ratios = (floats / torch_rate, exact / torch_rate, exact / floats)
            print(f"{title:<26}{figures}" + "".join(f"{r:>15.2f}" for r in ratios), flush=True)


if __name__ == "__main__":
    main()
