"""What stays behind when a run is handed on, unless it is asked for.

A run knows on which machines it was evaluated, where their files are, what failures said there, and
what an hour costs. None of that is needed to look at it, to play it, or to go on with it.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from germline.backends import registry
from germline.errors import InputError
from germline.messages import Evaluation, Failure
from germline.run.spec import Engine, Spec
from germline.run.store import Store

KINDS = {
    "hosts": "names of workers, addresses of backends",
    "paths": "files with tokens and certificates",
    "errors": "what failures said, beyond the kind of error",
    "costs": "prices, what was paid and what is to pay",
}
_OURS = re.compile(r"serial|[a-z]+-[0-9]+")  # processes of one machine, whichever it was
# What is raised is called so; any other first word may be the name of a machine.
_KIND = re.compile(r"[A-Za-z_]\w*(?:Error|Exception|Warning|Exit|Interrupt)(?=: |\Z)", re.ASCII)


def asked(text: str) -> frozenset[str]:
    """The kinds that are named, with commas between."""
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word not in KINDS:
            known = ", ".join(KINDS)
            raise InputError(f"--include: {word[:40]!r} is not one of {known}")
    return frozenset(words)


def spec(whole: Spec, include: Collection[str]) -> Spec:
    """A spec without what is its owner's; without an address, the processes of a machine work."""
    engine, stop = whole.backend, whole.stop
    gone = [] if "paths" in include else ["token_file", "certificate", "key"]
    if "hosts" not in include and engine.name not in registry.ALONE:
        gone += ["name", "workers", "token_file", "certificate", "key", "insecure"]
    if "costs" not in include:
        gone += ["price"]
        stop = msgspec.structs.replace(stop, cost=None)
    plain = {name: getattr(Engine(), name) for name in gone}
    return msgspec.structs.replace(
        whole, backend=msgspec.structs.replace(engine, **plain), stop=stop
    )


def session(about: Mapping[str, Any], include: Collection[str]) -> dict[str, Any]:
    """What a session worked with; of an address, only how it was spoken to."""
    if "hosts" in include or "backend" not in about:
        return dict(about)
    return {**about, "backend": str(about["backend"]).partition(":")[0]}


def workers(store: Store, include: Collection[str]) -> dict[int, str]:
    """The texts that stand for workers in the store's tables, by number."""
    query = (
        "SELECT number, name FROM names WHERE number NOT IN "
        "(SELECT operator FROM individuals WHERE operator IS NOT NULL) ORDER BY number"
    )
    rows = list(store.rows(query))
    return {
        number: name if "hosts" in include or _OURS.fullmatch(name) else f"worker {place}"
        for place, (number, name) in enumerate(rows, 1)
    }


def failure(reason: str | None, include: Collection[str]) -> str | None:
    """Why an evaluation failed: only the kind of error, if it begins with one.

    The rest of the text is a task's or a stranger's, and may say anything.
    """
    if reason is None or "errors" in include:
        return reason
    kind = _KIND.match(reason)
    return kind[0] if kind else "failed"


def state(part: Any, include: Collection[str]) -> Any:  # noqa: ANN401 - a state, or a part of one
    """An algorithm's state without who evaluated, and what failures said."""
    if isinstance(part, Evaluation | Failure):
        if "hosts" not in include:
            part = msgspec.structs.replace(part, worker="")
        if isinstance(part, Failure):
            part = msgspec.structs.replace(part, reason=failure(part.reason, include))
        return part
    if isinstance(part, msgspec.Struct):
        fields = {name: state(getattr(part, name), include) for name in part.__struct_fields__}
        return msgspec.structs.replace(part, **fields)
    if isinstance(part, Mapping):
        return {key: state(value, include) for key, value in part.items()}
    return tuple(state(one, include) for one in part) if type(part) is tuple else part


def clear(copy: Store, source: Store, include: Collection[str]) -> None:
    """Take out of a copy of a store what is not to be in it."""
    copy.reword(
        workers(source, include),
        lambda about: session(about, include),
        lambda reason: failure(reason, include),
        costs="costs" in include,
    )
