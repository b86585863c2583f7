"""The cores of this machine, and whether it has an accelerator; found out without starting JAX.

A process that starts JAX takes hold of the accelerator. So masters look here, stay on the CPU
themselves, and leave the accelerator to the worker that computes. `offscreen` is about drawing.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from germline.errors import InputError

Device = Literal["auto", "cpu", "gpu", "tpu"]

LANES = 8  # episodes under way for every core beside an accelerator

# What JAX calls a platform, the kind it is of, and the files of which a machine has one.
_PLATFORMS = {
    "cuda": ("gpu", ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")),
    "rocm": ("gpu", ("/dev/kfd",)),
    "tpu": ("tpu", ("/dev/accel0", "/dev/vfio/0")),
}


def choose(wanted: Device = "auto") -> str:
    """Give the platform to compute on, as JAX calls it; refuse what is not here."""
    if wanted == "cpu":
        return "cpu"
    found = present()
    if wanted == "auto":
        return found or "cpu"
    if found is None or _PLATFORMS[found][0] != wanted:
        raise InputError(
            f"device: there is no {wanted} here that JAX can use; germline doctor says what is"
        )
    return found


@lru_cache
def present() -> str | None:
    """The platform of an accelerator that is here and that the installed JAX supports."""
    allowed = os.environ.get("JAX_PLATFORMS", "").split(",")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles")
    for platform, (kind, files) in _PLATFORMS.items():
        if allowed != [""] and not {platform, kind} & set(allowed):
            continue
        if platform == "cuda" and hidden:
            continue
        if _supported(platform) and any(map(os.path.exists, files)):
            return platform
    return None


def _supported(platform: str) -> bool:
    if platform == "tpu":
        return find_spec("libtpu") is not None
    return any(platform in plugin.name for plugin in metadata.entry_points(group="jax_plugins"))


def name(platform: str) -> str:
    """What an accelerator is called, as far as its driver tells; the platform's name if not."""
    for about in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = about.read_text().partition("Model:")[2].partition("\n")[0].strip()
        return f"{platform} {model}"
    return platform


def settings(platform: str, *, exact: bool) -> Mapping[str, str]:
    """The environment of a process that computes on an accelerator.

    It takes memory as it needs it, for others may be there too. Floats are computed by the same
    algorithms every time, not by those that were fastest this time; whole numbers need no such
    care.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if platform == "cuda" and not exact:
        flags = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    return {
        "JAX_PLATFORMS": f"{platform},cpu",  # callbacks need the processor too
        "XLA_FLAGS": flags,
        "XLA_PYTHON_CLIENT_PREALLOCATE": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    }


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def hands() -> int:
    """How many processes to have beside the one with the accelerator, which needs a core too."""
    return cores() - 1 if cores() > 4 else cores()


def lanes(slots: int | None, count: int) -> int:
    """Episodes under way for each of `count` processes: a share of the slots, if these are said."""
    return LANES if slots is None else max(2, slots // count)


def offscreen(*, window: bool = False) -> None:
    """Let environments draw where there is no screen: about pictures, not about where JAX computes.

    To be called before they are imported.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not window:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")  # which would fork beside JAX
