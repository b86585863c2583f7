"""An environment of your own: anything with Gymnasium's reset and step.

python examples/own_environment.py
"""

import gymnasium
import numpy as np

import germline


class Lighthouse(gymnasium.Env):
    """Steer a boat, seen from above, to a light that is somewhere else every night."""

    observation_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)  # the way to the light
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)  # how to go

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.way = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.way, {}

    def step(self, action):
        self.way = np.clip(self.way - 0.2 * action, -2, 2).astype(np.float32)
        distance = float(np.hypot(*self.way))
        return self.way, -distance, distance < 0.1, False, {}


gymnasium.register("Lighthouse-v0", entry_point=Lighthouse, max_episode_steps=40)

# Workers import this script to know the environment, so training is kept from them.
if __name__ == "__main__":
    run = germline.train(
        {
            "name": "lighthouse",
            "task": {"name": "gym", "id": "Lighthouse-v0"},
            "policy": {"name": "mlp", "hidden": [8]},
            "algorithm": {
                "name": "ga",
                "population": 32,
                "episodes": 4,
                "sigma": 0.3,
                "candidates": 4,
            },
            "stop": {"generations": 12, "score": -5.0},
        },
        listener=lambda report, totals: print(f"{report.generation}: {report.elite:.2f}"),
    )
    scores = run.score(episodes=50)
    print(f"{scores.mean:.2f} ± {scores.error:.2f} by {run.champion.genome.id} in {run.folder}")
    raise SystemExit(scores.mean < -8)
