"""`germline doctor`: what is installed, what this machine can do, how fast it is."""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import germline
from germline import device as devices
from germline.cli import options
from germline.cli.options import AsJson
from germline.cli.output import is_terminal, say, say_json
from germline.errors import InputError

CORE = ("jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "msgspec", "safetensors")
EXTRAS = {
    "atari": ("ale-py",),
    "box2d": ("box2d", "pygame-ce"),
    "celery": ("celery", "amqp", "redis"),
    "dashboard": ("fastapi", "uvicorn", "plotly", "pillow", "pygame-ce"),
    "grpc": ("grpcio", "protobuf"),
    "jax-envs": ("gymnax", "brax"),
    "mujoco": ("mujoco",),
    "parquet": ("pyarrow",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "video": ("imageio", "imageio-ffmpeg", "pillow", "pygame-ce"),
}
TESTED = ("3.11", "3.12", "3.13")  # versions of Python
# The weights of one genome with four operators, by the numpy reference.
GOLDEN = "8cfd5e5e43a74010b68320235e9e47a9b2ee70cadfe33e80a33e41ac709c4718"


def doctor(
    bench: Annotated[
        bool,
        typer.Option(
            "--bench", help="Measure the parts of a run, in about a minute, and say what to set."
        ),
    ] = False,
    device: options.Device = None,
    json: AsJson = False,
) -> None:
    """Say what is installed, what this machine can do, and how fast it is (takes seconds)."""
    if device is not None and not bench:
        raise InputError("--device: is what to measure, so add --bench")
    options.prepare(False)
    facts = _benched(options.device(device)) if bench else _facts()
    if json:
        say_json(facts)
        return
    extras = {
        extra: version or f"not here: pip install 'germline[{extra}]'"
        for extra, version in facts.get("extras", {}).items()
    }
    for title, section in ({**facts, "extras": extras} if extras else facts).items():
        typer.echo(typer.style(title.replace("_", " "), bold=True))
        if title == "recommendation":
            for sentence in section["why"]:
                say(f"  {sentence}")
            continue
        for name, value in section.items():
            shown = {True: "yes", False: "no", None: "not here"}.get(value, value)
            shown = f"{shown:,.1f}" if isinstance(shown, float) else shown
            say(f"  {name.replace('_', ' '):<30}{shown}")


def _facts() -> dict[str, dict[str, Any]]:
    return {
        "machine": _machine(),
        "packages": {"germline": germline.__version__, **{name: _version(name) for name in CORE}},
        "extras": {extra: _versions(names) for extra, names in EXTRAS.items()},
        "platform": _platform(),
        "speed": _speed(),
    }


def _benched(device: devices.Device) -> dict[str, dict[str, Any]]:
    """The machine, and how fast it is at the parts of a run."""
    from germline.cli import bench

    def note(text: str) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            typer.echo(f"{text} ...", err=True)

    return {"machine": _machine(), **bench.measured(bench.SECONDS, device=device, say=note)}


def _machine() -> dict[str, str]:
    import jax

    from germline.device import cores

    memory = "unknown"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f"{size / 2**30:.1f} GiB"
    # The accelerator itself is left to workers: JAX sees only the processor here.
    accelerator = devices.present()
    found = [] if accelerator is None else [devices.name(accelerator)]
    found += [f"{device.device_kind} ({device.platform})" for device in jax.devices()]
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "python": platform.python_version(),
        "cores": str(cores()),
        "memory": memory,
        "devices": ", ".join(found),
    }


def _platform() -> dict[str, Any]:
    """What Germline needs of a system, tried here."""
    from germline.cli.output.screens import has_screen
    from germline.run import database

    kind = database.filesystem(Path.cwd())
    here = "unknown" if not kind else f"{kind}, {'not ' if kind in database.NETWORK else ''}usable"
    support = {
        "linux": "Linux: tested",
        "darwin": "macOS: expected to work, not tested",
        "win32": "Windows: not supported; use WSL 2, which is Linux",
    }
    python = ".".join(map(str, sys.version_info[:2]))
    return {
        "support": support.get(sys.platform, f"{sys.platform}: unknown, not tested"),
        "python_support": f"{python}: {'tested' if python in TESTED else 'not tried'}",
        "same_bits": _same_bits(),
        "file_locks": database.has_locks(),
        "runs_kept_here": here,
        "window": has_screen(),
        "terminal": is_terminal(),
    }


def _same_bits() -> bool:
    """Whether a genome decodes to the bits it has everywhere."""
    from germline import blobs, policies
    from germline.decode import Decoder
    from germline.genome import Birth, Gene, Genome

    spec = policies.make("mlp", {"inputs": 4, "hidden": [64, 64], "outputs": 2})
    genome = Genome(policies.reference("mlp", spec), Birth(1))
    for seed, operator in enumerate(("gaussian", "block:layer", "sparse:0.1", "lowrank:4")):
        genome = genome.child(Gene(seed, 0.02, operator))
    return blobs.weights_hash(Decoder(spec.layout()).decode(genome)) == GOLDEN


def _speed() -> dict[str, float]:
    """Decoding a network of 4,052,658 weights, and playing a small one in one process."""
    from germline import policies
    from germline.decode import Decoder
    from germline.genome import Birth, Gene, Genome

    spec = policies.make("dqn", {})
    decoder = Decoder(spec.layout())
    parent = Genome(policies.reference("dqn", spec), Birth(1))
    children = [parent.child(Gene(seed, 0.002)) for seed in range(6)]
    for child in children[:2]:
        decoder.decode(child).block_until_ready()
    started = time.perf_counter()
    for child in children[2:]:
        decoder.decode(child).block_until_ready()
    decoding = (time.perf_counter() - started) / 4
    return {
        "decode_milliseconds": 1000 * decoding,
        "functional_steps_per_second": _steps("functional"),
        "gym_steps_per_second": _steps("gym"),
    }


def _steps(task: str) -> float:
    """Steps per second of some small networks, compiled before."""
    from germline import policies
    from germline.files import GenomeFile, TaskRef
    from germline.genome import Birth, Genome
    from germline.run.score import score

    spec = policies.make("mlp", {"inputs": 4, "hidden": [32], "outputs": 2})
    genome = Genome(policies.reference("mlp", spec), Birth(1))
    file = GenomeFile(genome, TaskRef(task, {"id": "CartPole-v1"}))
    episodes = 512 if task == "functional" else 64
    for seed in (0, 1):  # the second finds other sizes of batches, and compiles for them
        score(file, episodes, seed=seed, workers=1)
    started = time.perf_counter()
    steps = sum(score(file, episodes, seed=2, workers=1).steps)
    return steps / (time.perf_counter() - started)


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _versions(names: tuple[str, ...]) -> str | None:
    """The versions of all packages of an extra; None if one is missing."""
    found = [_version(name) for name in names]
    return None if None in found else ", ".join(map(" ".join, zip(names, found, strict=True)))  # type: ignore[arg-type]
