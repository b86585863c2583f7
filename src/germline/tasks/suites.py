"""Environments of others on the device: Gymnasium's FuncEnv, and adapters for gymnax and Brax."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import DependencyNotInstalled

from germline.errors import InputError
from germline.policies.protocols import Array
from germline.settings import nearest
from germline.tasks.film import no_pygame, undrawable
from germline.tasks.on_device.dynamics import Dynamics, State
from germline.tasks.spaces import Space, continuous, discrete, of_gymnasium

Suite = Literal["gymnasium", "gymnax", "brax"]


def dynamics(suite: Suite, name: str, limit: int | None = None) -> Dynamics:
    """Give an environment by its suite and name, its own time limit replaced if one is given."""
    return {"gymnasium": _gymnasium, "gymnax": _gymnax, "brax": _brax}[suite](name, limit)


def known() -> dict[str, tuple[list[str], str | None]]:
    """The environments of every suite, and what has to be installed to have them."""
    found: dict[str, tuple[list[str], str | None]] = {"gymnasium": (sorted(_KNOWN), None)}
    needs = "pip install 'germline[jax-envs]'"
    try:
        import gymnax

        found["gymnax"] = sorted(gymnax.registered_envs), None
    except ImportError:
        found["gymnax"] = [], needs
    try:
        found["brax"] = sorted(_brax_envs()._envs), None
    except ImportError:
        found["brax"] = [], needs
    return found


class _Undescribed:
    """An environment that says nothing of how an episode went."""

    def behaviour(self, state: State, obs: Array) -> Array | None:
        """Nothing."""
        return None


@dataclass(frozen=True)
class FuncEnvironment(_Undescribed):
    """A Gymnasium FuncEnv with its parameters."""

    environment: Any
    params: Any
    space: Space
    limit: int | None
    pace: int

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

    def picture(self, state: State) -> Array:
        """Draw a state with pygame."""
        try:
            # Gymnasium draws the pendulum on a square, which its own default would cut.
            side = getattr(self.params, "screen_dim", None)
            size = {"screen_width": side, "screen_height": side} if side else {}
            screen = self.environment.render_init(**size, params=self.params)
            return self.environment.render_image(np.asarray(state), screen, self.params)[1]
        except DependencyNotInstalled:
            raise no_pygame() from None


_KNOWN = {  # id: kind, time limit, pace
    "CartPole-v0": ("cart", 200, 50),
    "CartPole-v1": ("cart", 500, 50),
    "Pendulum-v1": ("pendulum", 200, 30),
}


def _gymnasium(name: str, limit: int | None) -> Dynamics:
    from gymnasium.envs.phys2d.cartpole import CartPoleFunctional, CartPoleParams
    from gymnasium.envs.phys2d.pendulum import PendulumFunctional, PendulumParams

    # Gymnasium's own default adds mass and length where the host environment multiplies them.
    cart = CartPoleParams(polemass_length=0.1 * 0.5)
    kinds: dict[str, tuple[Any, Any]] = {
        "cart": (CartPoleFunctional, cart),
        "pendulum": (PendulumFunctional, PendulumParams()),
    }
    if name not in _KNOWN:
        raise InputError(f"task functional: id: {name!r} is not known; {nearest(name, _KNOWN)}")
    which, own, pace = _KNOWN[name]
    kind, params = kinds[which]
    environment = kind()
    space = of_gymnasium(name, environment.observation_space, environment.action_space)
    return FuncEnvironment(environment, params, space, limit or own, pace)


class _Undrawn(_Undescribed):
    """An environment whose package draws nothing that we could show."""

    pace = 30

    def picture(self, state: State) -> Array:
        """Refuse."""
        raise undrawable(f"{type(self).__name__} environments are not drawn")


@dataclass(frozen=True)
class Gymnax(_Undrawn):
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
class Brax(_Undrawn):
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
    try:
        envs = _brax_envs()
    except ImportError as error:
        raise _absent("brax", error) from None
    with _quietly():
        if name not in envs._envs:
            hint = nearest(name, sorted(envs._envs))
            raise InputError(f"task functional: id: {name!r} is not one of Brax's; {hint}")
        environment = envs.get_environment(name)
        ones = jnp.ones(environment.action_size)
        seen = (int(environment.observation_size),)
        space = continuous(seen, "float32", -ones, ones, (int(environment.action_size),))
    return Brax(environment, space, limit or 1000)


def _brax_envs() -> Any:  # noqa: ANN401 - a module
    """Brax, without what its dependencies print while they are imported."""
    with _quietly(), redirect_stdout(io.StringIO()):
        from brax import envs
    return envs


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
