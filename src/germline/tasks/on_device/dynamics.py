"""What an environment on the device is: pure functions, for one episode, to be mapped over many.

It says what its time limit is; `rollout` keeps it.
"""

from typing import Any, Protocol

from germline.policies.protocols import Array
from germline.tasks.spaces import Space

State = Any


class Dynamics(Protocol):
    """An environment on the device."""

    @property
    def space(self) -> Space:
        """What is seen and done."""
        ...

    @property
    def limit(self) -> int | None:
        """Its own time limit."""
        ...

    def reset(self, key: Array) -> tuple[State, Array]:
        """Begin an episode."""
        ...

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Go one step on: (state, obs, reward, terminated)."""
        ...

    def behaviour(self, state: State, obs: Array) -> Array | None:
        """What an episode that ends here is told from others by; None if nothing is said."""
        ...

    def picture(self, state: State) -> Array:
        """Draw a state, as uint8 [height, width, 3]."""
        ...

    @property
    def pace(self) -> int:
        """Steps per second at which it looks natural."""
        ...
