"""What an episode is told from others by, where novelty counts: a few numbers.

Tasks have some of their own, such as the last observation or the memory of a console. Others are
functions, known by name like tasks:

    @tasks.behaviour("how-far")
    def how_far(environment, observation, info):
        return [info["x_position"]]

Called at the end of an episode, with (environment, observation, info) by `gym`, with (ale,) by
`atari`; and with (state, observation), traced, by `functional`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from germline import settings as written
from germline.errors import InputError
from germline.genome import Name, check_type

if TYPE_CHECKING:
    import jax

MOST = 4096  # numbers
OWN = ("known", "observation", "position", "ram")  # what tasks call theirs

Title = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Behaviour = Callable[..., Any]
B = TypeVar("B", bound=Behaviour)

_registry: dict[str, Behaviour] = {}


def register(name: str) -> Callable[[B], B]:
    """Make a function known under a name, as a decorator."""
    check_type("behaviour name", name, Name)
    if name in OWN:
        raise ValueError(f"behaviour {name!r}: tasks have one of this name themselves")

    def keep(function: B) -> B:
        written.keep("behaviour", name, function, _registry)
        return function

    return keep


def home(name: object) -> str | None:
    """Give the module that registered a behaviour; None if there is no such behaviour."""
    return written.home(name, _registry)


def find(task: str, name: str, own: Mapping[str, Behaviour]) -> Behaviour:
    """Give a task's `own` function of a name, or else a registered one."""
    known = {**_registry, **own}
    if name not in known:
        hint = written.nearest(name, sorted(known))
        raise InputError(f"task {task}: behaviour: {name!r} is not registered; {hint}")
    return known[name]


def numbers(found: Any) -> tuple[float, ...]:  # noqa: ANN401 - whatever a function gives
    """What a function on the host gave, as plain numbers."""
    import numpy as np

    listed: Sequence[float] = np.asarray(found, np.float64).ravel().tolist()
    _check_count(len(listed))
    return tuple(listed)


def traced(found: Any) -> "jax.Array":  # noqa: ANN401 - whatever a function gives
    """What a traced function gave, as one row of float32."""
    import jax.numpy as jnp

    row = jnp.ravel(jnp.asarray(found, jnp.float32))
    _check_count(row.size)
    return row


def _check_count(count: int) -> None:
    if not 0 < count <= MOST:
        raise ValueError(f"a behaviour has 1 to {MOST} numbers, not {count}")
