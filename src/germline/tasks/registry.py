"""Tasks by name: settings classes, and functions that score a policy."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from germline import settings as written
from germline.errors import InputError
from germline.files import TaskRef
from germline.genome import Name, check_type
from germline.tasks.protocols import Task

Kind = TypeVar("Kind", bound=Callable[..., Any])

_registry: dict[str, type[Task]] = {}
_origins: dict[str, str] = {}


def register(name: str, *, jax: bool = False) -> Callable[[Kind], Kind]:
    """Make a task known under a name, as a decorator.

    It stands before a struct of settings with the methods of `Task`, or before a function of
    (policy, seed) that gives the fitness; with `jax` it is traced, and scores many at once.
    """
    check_type("task name", name, Name)

    def keep(kind: Kind) -> Kind:
        origin = f"{kind.__module__}.{kind.__qualname__}"
        known = _origins.setdefault(name, origin) if name in _registry else origin
        if known != origin:
            raise ValueError(f"task {name!r} is registered already, as {known}")
        _registry[name], _origins[name] = _settings(name, kind, jax), origin
        return kind

    return keep


def _settings(name: str, kind: Any, jax: bool) -> type[Task]:  # noqa: ANN401
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return cast("type[Task]", kind)
    from germline.tasks.function import function_task

    return function_task(name, kind, traced=jax)


def names() -> list[str]:
    """Give the registered names in alphabetical order."""
    return sorted(_registry)


def home(name: str) -> str | None:
    """Give the module that registered a task; None if there is no such task."""
    kind: Any = _registry.get(name)
    return None if kind is None else str(getattr(kind, "score", kind).__module__)


def make(name: str, settings: Mapping[str, Any]) -> Task:
    """Build and check a task's settings; an error names the field."""
    kind = written.lookup("task", name, _registry)
    return written.convert(settings, kind, f"task {name}: ")


def reference(task: Task) -> TaskRef:
    """Give what files and workers are told of a task: its name and its settings."""
    for name, kind in _registry.items():
        if type(task) is kind:
            return TaskRef(name, msgspec.to_builtins(task))
    raise InputError(f"task: {type(task).__name__} is not registered; see tasks.register")
