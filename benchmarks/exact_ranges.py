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
from germline.policies.networks import NetworkPolicy
from germline.policies.steps import LARGEST

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
    """{layer: [observations, units]}."""

    @jax.jit
    def watch(policy: NetworkPolicy, frames: jax.Array) -> dict[str, jax.Array]:
        def one(obs: jax.Array) -> dict[str, jax.Array]:
            watched = Watched(policy.layers)
            policy.spec.forward(watched, obs, ())
            return watched.seen

        return jax.vmap(one)(frames)

    return {name: np.asarray(x).reshape(len(x), -1) for name, x in watch(policy, frames).items()}


def main() -> None:
    """Print one row per network, age and layer: means over individuals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--individuals", type=int, default=8)
    parser.add_argument("--observations", type=int, default=128)
    arguments = parser.parse_args()
    frames = frostbite(arguments.observations)
    seen = (frames >> 1) / 128
    print(f"{len(frames)} observations, root mean square {np.sqrt((seen**2).mean()):.2f} of 1")
    for padding in ("same", "valid"):
        spec = policies.exact(
            policies.make("dqn", {"padding": padding}), sigma=SIGMA, genes=DECLARED
        )
        layout = spec.layout()
        print(f"\n{padding}: steps {spec.steps}, shifts {spec.shifts}")
        print(f"{'genes':>6} {'layer':<6}{'clipped':>9}{'saturated':>11}{'dead':>8}{'float':>8}")
        rows: dict[tuple[int, str], list[tuple[float, ...]]] = {}
        for individual in range(arguments.individuals):
            seeds = np.random.default_rng(individual).integers(0, 2**32, max(AGES))
            reference = policies.reference("dqn", spec)
            genome = Genome(
                reference, Birth(individual), tuple(Gene(int(seed), SIGMA) for seed in seeds)
            )
            decoder = Decoder(layout)
            for age in AGES:
                measure(spec, decoder.decode(genome.prefix(age)), age, frames, rows)
        for (age, name), found in sorted(rows.items(), key=lambda item: item[0][0]):
            clipped, saturated, dead, floats = np.mean(found, axis=0)
            print(
                f"{age:>6} {name:<6}{clipped:>9.2%}{saturated:>11.2%}{dead:>8.1%}{floats:>8.1%}",
                flush=True,
            )


def measure(spec: Any, theta: jax.Array, age: int, frames: np.ndarray, rows: dict) -> None:  # noqa: ANN401
    """Add one individual at one age to the rows, layer by layer and over all of them."""
    layout = spec.layout()
    weights = layout.unflatten(np.asarray(theta))
    exact = activations(policies.build(spec, theta, "exact"), jnp.asarray(frames))
    floats = activations(policies.build(spec, theta), jnp.asarray(frames))
    layers = [t for t in layout.tensors if t.name.endswith("/weight")]
    beyond = {t.layer: np.abs(np.rint(weights[t.name] / 2.0**t.step)) > LARGEST for t in layers}
    nothing = np.zeros((len(frames), 0), bool)
    full = {name: x == LARGEST for name, x in exact.items()} | {"out": nothing}
    dead = {name: (x == 0).all(0) for name, x in exact.items()} | {"out": nothing[0]}
    other = {name: (x == 0).all(0) for name, x in floats.items()} | {"out": nothing[0]}

    def share(parts: list[np.ndarray]) -> float:
        joined = np.concatenate([part.reshape(-1) for part in parts])
        return float(joined.mean()) if joined.size else 0.0

    for name, chosen in [*((t.layer, [t.layer]) for t in layers), ("all", list(beyond))]:
        kinds = (beyond, full, dead, other)
        found = tuple(share([kind[layer] for layer in chosen]) for kind in kinds)
        rows.setdefault((age, name), []).append(found)


if __name__ == "__main__":
    main()
