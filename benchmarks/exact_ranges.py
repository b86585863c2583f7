"""How well the steps and shifts of exact arithmetic fit the paper's network as a lineage ages.

    python benchmarks/exact_ranges.py [--individuals 8] [--observations 128]

Random lineages at the paper's σ see real frames of Frostbite. Clipped are weights of more than 127
steps; saturated is the share of activations at 127; dead are units that are 0 for every
observation, beside the same share of the float network with the same weights; agrees is the share
of observations for which both choose the same action.
Needs ale-py: pip install 'germline[atari]'.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from germline import Birth, Decoder, Gene, Genome, policies
from germline.policies.arithmetic.steps import LARGEST
from germline.policies.building import NetworkPolicy

SIGMA, DECLARED = 0.002, 500
AGES = (0, 100, 500, 1000)


def frostbite(count: int) -> np.ndarray:
    """Observations [count, 84, 84, 4] from random play, spread over the first 300 steps."""
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(
        "frostbite", 16, reward_clipping=False, use_fire_reset=False, repeat_action_probability=0.0
    )
    rng = np.random.default_rng(0)
    env.reset(seed=np.arange(16, dtype=np.int32))
    seen = []
    for step in range(300):
        obs = env.step(rng.integers(0, 18, 16))[0]
        if step % 25 == 24:
            seen.append(np.moveaxis(obs, 1, -1))
    frames = np.concatenate(seen)
    return frames[rng.permutation(len(frames))[:count]]


class Watched:
    """Layers that keep what the hidden layers give."""

    def __init__(self, layers: Any) -> None:  # noqa: ANN401 - float or exact layers
        self.layers, self.seen = layers, {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other methods are theirs
        return getattr(self.layers, name)

    def hidden(self, name: str, y: jax.Array, activation: str = "relu") -> jax.Array:
        """Keep the activations, and give them."""
        self.seen[name] = self.layers.hidden(name, y, activation)
        return self.seen[name]


def activations(policy: NetworkPolicy, frames: jax.Array) -> dict[str, np.ndarray]:
    """{layer: [observations, units]}, and the chosen actions [observations, 1] under "action"."""

    @jax.jit
    def watch(policy: NetworkPolicy, frames: jax.Array) -> dict[str, jax.Array]:
        def one(obs: jax.Array) -> dict[str, jax.Array]:
            watched = Watched(policy.layers)
            scores, _ = policy.spec.forward(watched, obs, ())
            return watched.seen | {"action": scores.argmax()}

        return jax.vmap(one)(frames)

    return {name: np.asarray(x).reshape(len(x), -1) for name, x in watch(policy, frames).items()}


def lineage(spec: Any, seed: int) -> Genome:  # noqa: ANN401 - a policy's settings
    """A random lineage of the greatest age."""
    seeds = np.random.default_rng(seed).integers(0, 2**32, max(AGES))
    genes = tuple(Gene(int(number), SIGMA) for number in seeds)
    return Genome(policies.reference("dqn", spec), Birth(seed), genes)


def measure(spec: Any, theta: jax.Array, frames: jax.Array) -> dict[str, tuple[float, ...]]:  # noqa: ANN401
    """{layer: (clipped, saturated, dead, dead in floats)} and (agrees,) of one individual."""
    weights = spec.layout().unflatten(np.asarray(theta))
    exact = activations(policies.build(spec, theta, "exact"), frames)
    floats = activations(policies.build(spec, theta), frames)
    agrees = (exact.pop("action") == floats.pop("action")).mean()
    found: dict[str, tuple[float, ...]] = {}
    for tensor in spec.layout().tensors:
        name = tensor.layer
        if tensor.name.endswith("/weight"):
            clipped = np.abs(np.rint(weights[tensor.name] / 2.0**tensor.step)) > LARGEST
            found[name] = (float(clipped.mean()),)
        if name in exact and len(found[name]) == 1:
            saturated = (exact[name] == LARGEST).mean()
            found[name] += (saturated, (exact[name] == 0).all(0).mean())
            found[name] += ((floats[name] == 0).all(0).mean(),)
    return found | {"agrees": (float(agrees),)}


def main() -> None:
    """Print one row per network, age and layer: means over individuals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--individuals", type=int, default=8)
    parser.add_argument("--observations", type=int, default=128)
    arguments = parser.parse_args()
    frames = jnp.asarray(frostbite(arguments.observations))
    size = np.sqrt(((np.asarray(frames) / 255) ** 2).mean())
    print(f"{len(frames)} observations, root mean square {size:.2f} of 1")
    for padding in ("same", "valid"):
        plain = policies.make("dqn", {"padding": padding})
        spec = policies.exact(plain, sigma=SIGMA, genes=DECLARED)
        print(f"\n{padding}: steps {spec.steps}, shifts {spec.shifts}")
        print(f"{'genes':>6} {'layer':<8}{'clipped':>9}{'saturated':>11}{'dead':>8}{'float':>8}")
        rows: dict[tuple[int, str], list[tuple[float, ...]]] = {}
        for seed in range(arguments.individuals):
            genome, decoder = lineage(spec, seed), Decoder(spec.layout())
            for age in AGES:
                theta = decoder.decode(genome.prefix(age))
                for name, shares in measure(spec, theta, frames).items():
                    rows.setdefault((age, name), []).append(shares)
        for (age, name), shares in sorted(rows.items(), key=lambda item: item[0][0]):
            means = zip(np.mean(shares, axis=0), (9, 11, 8, 8), strict=False)
            print(f"{age:>6} {name:<8}" + "".join(f"{mean:>{wide}.2%}" for mean, wide in means))


if __name__ == "__main__":
    main()
