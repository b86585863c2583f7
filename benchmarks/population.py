"""Many different networks at once: the paper's, VALID padding, one observation each.

    python benchmarks/population.py [--networks 1024]

For accelerators, where a population is computed as one batch; on a CPU it takes fewer by default.
Ratios are to what a naive port does, `vmap` over convolutions in bfloat16.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from germline import Gene, mutation, policies

CONVOLUTIONS = (("conv1", 4), ("conv2", 2), ("conv3", 1))


def naive(weights: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
    """The network with XLA's own convolutions, in bfloat16."""
    half = {name: weight.astype(jnp.bfloat16) for name, weight in weights.items()}
    x = obs.astype(jnp.bfloat16)[None] / 255
    for name, stride in CONVOLUTIONS:
        axes = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, half[f"{name}/weight"], (stride, stride), "VALID", dimension_numbers=axes
        )
        x = jax.nn.relu(y + half[f"{name}/bias"])
    x = jax.nn.relu(x.reshape(-1) @ half["dense/weight"] + half["dense/bias"])
    return x @ half["out/weight"] + half["out/bias"]


def milliseconds(call: object, *arguments: object) -> float:
    """The median of 20 calls, each waited for."""
    jitted = jax.jit(call)
    jax.block_until_ready(jitted(*arguments))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        jax.block_until_ready(jitted(*arguments))
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


def main() -> None:
    """Print one row per way to compute a population."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    accelerated = jax.default_backend() != "cpu"
    parser.add_argument("--networks", type=int, default=1024 if accelerated else 16)
    count = parser.parse_args().networks
    spec = policies.exact(policies.make("dqn", {"padding": "valid"}))
    layout = spec.layout()
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (count, 84, 84, 4)), jnp.uint8)
    seeds = jnp.arange(count, dtype=jnp.uint32)
    thetas = jax.jit(jax.vmap(lambda seed: mutation.birth(seed, layout)))(seeds)

    def report(title: str, found: float) -> None:
        rate = 1e3 * count / found
        print(f"  {title:<44}{found:9.2f} ms{rate:14,.0f} obs/s{base / found:8.2f}x", flush=True)

    def play(policy: policies.Policy, obs: jax.Array) -> jax.Array:
        return policy(obs, ())[0]

    print(f"{count} networks of {layout.size:,} weights on {jax.devices()[0].device_kind}")
    weights = jax.jit(layout.unflatten)(thetas)
    weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)
    base = milliseconds(jax.vmap(naive), weights, obs)
    del weights
    report("vmap over convolutions, bfloat16", base)
    ways = [("bfloat16", None), ("float32", None)]
    ways += [("exact", blocks) for blocks in ("int8", "bfloat16", "float32")]
    outputs = {}
    for arithmetic, blocks in ways:
        build = jax.vmap(
            lambda theta, a=arithmetic, b=blocks: policies.build(spec, theta, a, blocks=b)
        )
        population = build(thetas)
        title = f"{arithmetic}, {blocks} blocks" if blocks else arithmetic
        report(title, milliseconds(jax.vmap(play), population, obs))
        if blocks:
            outputs[blocks] = np.asarray(jax.jit(jax.vmap(play))(population, obs))
        del population
    assert all(np.array_equal(outputs["int8"], other) for other in outputs.values())
    for rank in (1, 4):
        genes = [Gene(i, 0.002, f"lowrank:{rank}") for i in range(count)]
        group = policies.siblings(spec, thetas[0], genes, width=count, arithmetic="bfloat16")
        took = milliseconds(lambda group, obs: group(obs, ())[0], group, obs)
        report(f"siblings of rank {rank}, shared products, bfloat16", took)
    one = policies.build(spec, thetas[0], "bfloat16")
    report("one network for all, bfloat16", milliseconds(jax.vmap(play, (None, 0)), one, obs))


if __name__ == "__main__":
    main()
