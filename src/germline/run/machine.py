"""What a session works with, and what of that may change results."""

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from germline import address
from germline import device as devices
from germline.run.spec import Engine


def about(engine: Engine) -> dict[str, Any]:
    """What a session works with: the kind of machine matters to floats, versions to tasks."""
    names = ("germline", "jax", "jaxlib", "numpy", "gymnasium", "ale-py", "optax")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    name = address.redact(engine.name)
    return {"backend": name, "kind": kind(engine), "versions": versions}


def differences(
    sessions: list[dict[str, Any]], now: dict[str, Any], arithmetic: str
) -> Iterator[str]:
    """Say what a run was begun with and is not gone on with, if that may change results."""
    if not sessions:
        return
    begun, versions = sessions[0].get("kind", "unknown"), sessions[0].get("versions", {})
    if begun != now["kind"] and arithmetic != "exact":
        yield (
            f"this run was begun on another kind of machine ({begun}, here {now['kind']}); "
            "floats round differently there"
        )
    for name in sorted({*versions, *now["versions"]} - {"germline"}):
        then, here = (known.get(name, "none") for known in (versions, now["versions"]))
        if then != here:
            yield f"this run was begun with {name} {then}, here is {here}; results may differ"


def kind(engine: Engine) -> str:
    """The kind of this machine, as far as it changes how floats are rounded.

    On an accelerator that is its name, and the number of slots.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        flags = []
    vectors = [flag for flag in ("avx512f", "avx2", "fma") if flag in flags]
    where = devices.choose(engine.device) if engine.name == "processes" else "cpu"
    if where != "cpu":
        count = engine.workers or devices.hands()
        lanes = devices.lanes(engine.slots, count)
        where = f"{devices.name(where)}, {count * (lanes // 2) * 2} slots"
    return " ".join([platform.machine(), *vectors, where])
