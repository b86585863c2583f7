"""A network of your own: any Equinox module can evolve.

python examples/own_policy.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import germline
from germline import policies


@policies.register("two-paths")
class TwoPaths(eqx.Module):
    """A straight path and one through a hidden layer, added."""

    straight: eqx.nn.Linear
    hidden: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, inputs: int, outputs: int, width: int = 8, *, key: jax.Array) -> None:
        first, second, third = jax.random.split(key, 3)
        self.straight = eqx.nn.Linear(inputs, outputs, key=first)
        self.hidden = eqx.nn.Linear(inputs, width, key=second)
        self.last = eqx.nn.Linear(width, outputs, key=third)

    def __call__(self, obs: jax.Array, carry: tuple[()]) -> tuple[jax.Array, tuple[()]]:
        return self.straight(obs) + self.last(jnp.tanh(self.hidden(obs))), carry

    def initial_carry(self) -> tuple[()]:
        return ()  # what a recurrent network would remember from step to step


# Workers import this script to know the network, so training is kept from them.
if __name__ == "__main__":
    run = germline.train(
        {
            "name": "two-paths",
            "task": {"name": "functional", "id": "CartPole-v1"},
            "policy": {"name": "two-paths", "inputs": 4, "outputs": 2},
            "algorithm": {"name": "ga", "population": 64, "sigma": 0.1, "candidates": 4},
            "stop": {"generations": 30, "score": 400.0},
        },
        listener=lambda report, totals: print(f"{report.generation}: {report.elite:.0f}"),
    )
    raise SystemExit(run.reports[-1].elite < 400)
