"""Environments for tests of hands, known to Gymnasium once this is imported: `imports`."""

import os
import signal

import gymnasium
import numpy as np
from gymnasium import spaces

KINDS = {
    "discrete": spaces.Discrete(3, start=1),
    "several": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(3),
    "continuous": spaces.Box(-1.0, 2.0, (2,)),
    "scalar": spaces.Box(-1.0, 2.0, ()),
    "whole": spaces.Box(0, 9, (2,), np.int32),
}


class Arcade(gymnasium.Env):
    """A walk that its actions push; as long as its seed says.

    For one `seed` there is `trouble`, at its first step or at its `reset`.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,))

    def __init__(self, kind="discrete", trouble="", seed=-1, early=False):
        self.action_space = KINDS[kind]
        self.trouble, self.troubled, self.early = trouble, seed, early

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.at = seed, self.np_random.normal(size=4).astype(np.float32)
        self.left = 3 + seed % 5
        if self.early:
            self.meet()
        return self.at, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.meet()
        push = float(np.sum(action, dtype=np.float64))
        self.at = (0.9 * self.at + 0.1 * push).astype(np.float32)
        self.left -= 1
        return self.at, push, self.left == 0, False, {}

    def meet(self):
        if self.now == self.troubled:
            if self.trouble == "raise":
                raise ValueError("it is broken")
            if self.trouble:
                os.kill(os.getpid(), getattr(signal, self.trouble))


gymnasium.register("Arcade-v0", entry_point=Arcade)
