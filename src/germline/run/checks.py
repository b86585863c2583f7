"""What of a spec does not go together, refused before anything is written or started."""

from typing import Any

from germline import operators
from germline.backends import registry
from germline.errors import InputError
from germline.run.spec import Spec
from germline.tasks import random_play
from germline.tasks.spaces import Space


def exact(space: Space | None, task: Any, policy: Any) -> None:  # noqa: ANN401
    """Refuse what has no exact arithmetic."""
    if space is not None and space.dtype not in ("uint8", "int8"):
        raise InputError(
            "arithmetic: exact needs observations in whole numbers, such as pixels, "
            f"not {space.dtype}"
        )
    if getattr(task, "graded", False):
        raise InputError("task.fitness: exact arithmetic has no cross-entropy; take another")
    for setting in ("normalise", "similarity"):
        if getattr(policy, setting, None) is not None:
            raise InputError(f"policy.{setting}: has no exact arithmetic; leave one of them out")


def normaliser(spec: Spec, task: Any, policy: Any) -> None:  # noqa: ANN401
    """Refuse to normalise by what a task does not give."""
    kind = getattr(policy, "normalise", None)
    if kind == "virtual":
        random_play.check(task)
    if kind == "observations" and not getattr(task, "counts", True):
        name = spec.task["name"]
        raise InputError(f"policy.normalise: {name} does not add up what is observed; leave it out")


def algorithm(made: Any, task: Any, policy: Any) -> None:  # noqa: ANN401
    """Refuse mutations that a network does not take, and novelty where nothing is told of it."""
    if hasattr(made, "operator"):
        operators.check(operators.parse(made.operator), policy.layout())
    if hasattr(made, "neighbours"):
        _behaviour(task)


def _behaviour(task: Any) -> None:  # noqa: ANN401
    """Refuse a task of which is known that it says nothing of how an episode went."""
    if getattr(task, "behaviour", "") is None:
        raise InputError("task.behaviour: novelty needs one, see docs/tasks.md: Behaviours")
    if hasattr(task, "describes") and not task.describes():
        raise InputError(
            "task: says nothing of behaviour; novelty needs it, see docs/tasks.md: Behaviours"
        )


def siblings(spec: Spec, task: Any, policy: Any, algorithm: Any) -> None:  # noqa: ANN401
    """Refuse shared products where there can be none."""
    if not spec.siblings:
        return
    operator = getattr(algorithm, "operator", "")
    if not operators.is_lowrank(operator):
        found = f"are {operator}" if operator else "are none"
        raise InputError(f"siblings: needs algorithm.operator lowrank:R; here mutations {found}")
    if spec.arithmetic == "exact":
        raise InputError("siblings: shared products are float arithmetic; leave one of them out")
    if task.together:
        name = spec.task["name"]
        raise InputError(f"siblings: are for tasks on the host, such as atari, not for {name}")
    if not hasattr(policy, "forward"):
        name = spec.policy["name"]
        raise InputError(f"siblings: {name} is a module, which cannot share products")


def engine(spec: Spec) -> None:
    """Refuse settings that have no meaning for an engine, and to serve all the world by mistake."""
    given, place = spec.backend, spec.backend.address
    scheme = place.scheme if place is not None else given.name
    kind = registry.kind_of(scheme)
    for name in ("certificate", "key", "insecure"):
        if getattr(given, name) and not kind.serves:
            instead = f"; use {scheme}s:// for TLS" if scheme in ("amqp", "redis") else ""
            raise InputError(f"backend.{name}: is for grpc addresses, not for {scheme}{instead}")
    if given.token_file is not None and scheme == "ray":
        raise InputError("backend.token_file: Ray has a token of its own, in RAY_AUTH_TOKEN")
    if given.token_file is not None and place is None:
        raise InputError(f"backend.token_file: is for workers elsewhere, not for {scheme}")
    if (given.certificate is None) != (given.key is None):
        one, other = ("certificate", "key") if given.key is None else ("key", "certificate")
        raise InputError(f"backend.{one}: needs backend.{other}, too")
    exposed = kind.serves and place is not None and not place.loopback
    if exposed and given.certificate is None and not given.insecure:
        raise InputError(
            "backend.name: others can reach this address, so give backend.certificate and "
            "backend.key, or say backend.insecure = true"
        )
    if given.audit and spec.arithmetic != "exact":
        raise InputError(
            'backend.audit: needs arithmetic = "exact", for floats differ between machines'
        )
    if spec.stop.cost is not None and not given.price:
        raise InputError("stop.cost: needs backend.price, what an hour of one worker costs")
