"""Environments as pure functions: Gymnasium's FuncEnv, and adapters for gymnax and Brax.

An environment is `reset(key) → (state, obs)` and `step(state, action, key) → (state, obs, reward,
terminated)`, both for one episode, to be mapped over many. Time limits are not its business.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp

from germline.errors import InputError
from germline.policies.protocols import Array
from germline.settings import nearest
from germline.tasks.spaces import Space, continuous, discrete, of_gymnasium

Suite = Literal["gymnasium", "gymnax", "brax"]
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


def dynamics(suite: Suite, name: str, limit: int | None = None) -> Dynamics:
    """Give an environment by its suite and name, its own time limit replaced if one is given."""
    return {"gymnasium": _gymnasium, "gymnax": _gymnax, "brax": _brax}[suite](name, limit)


@dataclass(frozen=True)
class FuncEnvironment:
    """A Gymnasium FuncEnv with its parameters."""

    environment: Any
    params: Any
    space: Space
    limit: int | None

    def reset(self, key: Array) -> tuple[State, Array]:
        """Draw a first state."""
        with jax.numpy_dtype_promotion("standard"):
            state = self.environment.initial(key, self.params)
            return state, self.environment.observation(state, key, self.params)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Transition, then what is seen, gained and over."""
        env, params = self.environment, self.params
        with jax.numpy_dtype_promotion("standard"):
            after = env.transition(state, action, key, params)
            reward = jnp.asarray(env.reward(state, action, after, key, params), jnp.float32)
            over = jnp.asarray(env.terminal(after, key, params), bool)
            return after, env.observation(after, key, params), reward, over


def _gymnasium(name: str, limit: int | None) -> Dynamics:
    from gymnasium.envs.phys2d.cartpole import CartPoleFunctional, CartPoleParams
    from gymnasium.envs.phys2d.pendulum import PendulumFunctional, PendulumParams

    # Gymnasium's own default adds mass and length where the host environment multiplies them.
    cart = CartPoleParams(polemass_length=0.1 * 0.5)
    known: dict[str, tuple[Any, Any, int]] = {
        "CartPole-v0": (CartPoleFunctional, cart, 200),
        "CartPole-v1": (CartPoleFunctional, cart, 500),
        "Pendulum-v1": (PendulumFunctional, PendulumParams(), 200),
    }
    if name not in known:
        raise InputError(f"task functional: id: {name!r} is not known; {nearest(name, known)}")
    kind, params, own = known[name]
    environment = kind()
    space = of_gymnasium(name, environment.observation_space, environment.action_space)
    return FuncEnvironment(environment, params, space, limit or own)


@dataclass(frozen=True)
class Gymnax:
    """A gymnax environment, which would otherwise start over by itself."""

    environment: Any
    params: Any
    space: Space
    limit: int | None

    def reset(self, key: Array) -> tuple[State, Array]:
        """Draw a first state."""
        with jax.numpy_dtype_promotion("standard"):
            obs, state = self.environment.reset_env(key, self.params)
        return state, jnp.asarray(obs, self.space.dtype)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Go on, without starting over."""
        with jax.numpy_dtype_promotion("standard"):
            obs, after, reward, over, _ = self.environment.step_env(key, state, action, self.params)
        # Weakly typed counters would make the state of a loop change its type.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), after, state)
        obs = jnp.asarray(obs, self.space.dtype)
        return after, obs, jnp.asarray(reward, jnp.float32), jnp.asarray(over, bool)


def _gymnax(name: str, limit: int | None) -> Dynamics:
    try:
        import gymnax
    except ImportError as error:
        raise _absent("gymnax", error) from None
    if name not in gymnax.registered_envs:
        hint = nearest(name, gymnax.registered_envs)
        raise InputError(f"task functional: id: {name!r} is not one of gymnax's; {hint}")
    environment, params = gymnax.make(name)
    own = int(params.max_steps_in_episode)
    # Past the limit, so that the end gymnax reports is never the limit's.
    params = params.replace(max_steps_in_episode=max(own, limit or own) + 1)
    seen, actions = environment.observation_space(params), environment.action_space(params)
    if not hasattr(seen, "shape") or not hasattr(seen, "low"):
        raise InputError(f"task functional: id: {name}: its observations are no array of numbers")
    if hasattr(actions, "n"):
        space = discrete(tuple(seen.shape), "float32", int(actions.n))
    else:
        shape = tuple(actions.shape)
        low, high = (jnp.broadcast_to(side, shape) for side in (actions.low, actions.high))
        space = continuous(tuple(seen.shape), "float32", low, high, shape)
    return Gymnax(environment, params, space, limit or own)


@dataclass(frozen=True)
class Brax:
    """A Brax environment."""

    environment: Any
    space: Space
    limit: int | None

    def reset(self, key: Array) -> tuple[State, Array]:
        """Draw a first state."""
        with _quietly():
            state = self.environment.reset(key)
        return state, state.obs

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Go one physics step on; nothing in it is random."""
        with _quietly():
            after = self.environment.step(state, action)
        return after, after.obs, jnp.asarray(after.reward, jnp.float32), after.done > 0


def _brax(name: str, limit: int | None) -> Dynamics:
    with _quietly():
        try:
            from brax import envs
        except ImportError as error:
            raise _absent("brax", error) from None
        if name not in envs._envs:
            hint = nearest(name, sorted(envs._envs))
            raise InputError(f"task functional: id: {name!r} is not one of Brax's; {hint}")
        environment = envs.get_environment(name)
        ones = jnp.ones(environment.action_size)
        seen = (int(environment.observation_size),)
        space = continuous(seen, "float32", -ones, ones, (int(environment.action_size),))
    return Brax(environment, space, limit or 1000)


@contextmanager
def _quietly() -> Iterator[None]:
    """Brax warns of its dependencies' future, and mixes dtypes."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        yield


def _absent(package: str, error: ImportError) -> InputError:
    return InputError(
        f"task functional: suite: {package} is not here ({error}); "
        "add it with: pip install 'germline[jax-envs]'"
    )
