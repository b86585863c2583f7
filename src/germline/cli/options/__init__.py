"""What several commands read in the same way, and how their process is set up for it.

completion  what a shell offers where a name is expected
individual  who is meant by GENOME or RUN or RUN:ID, and what it is to play
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from germline import device as devices
from germline.cli.options import completion

SpecName = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|SPEC",
        help="A preset, see germline presets, or a TOML file.",
        autocompletion=completion.spec,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field of the spec as name=value, such as stop.generations=50."),
]
Run = Annotated[Path, typer.Argument(help="The folder of a run.", autocompletion=completion.run)]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow the spec to import modules, which is running code.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file at --out.")]
Include = Annotated[
    str,
    typer.Option(
        metavar="hosts,paths,errors,costs",
        help="Also write what is otherwise left out, of these, with commas between.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per generation.")]
Plain = Annotated[bool, typer.Option("--plain", help="One line per generation, as in a pipe.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing, unless it is stopped.")]

Backend = Annotated[
    str | None,
    typer.Option(
        envvar="GERMLINE_BACKEND",
        metavar="serial|processes|ray|URL",
        help="Who evaluates, if not as specified; URLs are grpc, ray, amqp(s) and redis(s).",
        autocompletion=completion.backend,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many processes here; if not said one per core, and none with a URL. "
        "With ray, the cores to use.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|gpu|tpu",
        help="What the processes here compute on; if not said, the accelerator if there is one.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the secret all workers share; GERMLINE_TOKEN if not given."),
]
Certificate = Annotated[
    Path | None, typer.Option(help="The certificate to serve grpc:// with, in PEM.")
]
Key = Annotated[Path | None, typer.Option(help="The private key of the certificate, in PEM.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Serve others without a certificate or a token.")
]
Audit = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="The share of evaluations, 0 to 1, that are done twice to compare."
    ),
]


@contextmanager
def signals() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM instead of dying of them; a second one is not waited for."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if len(caught) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    except KeyboardInterrupt:
        raise typer.Exit(128 + caught[0] if caught else 130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare(trust: bool) -> None:
    """Set JAX up before it is imported; modules of a trusted spec may be in the current folder."""
    from germline import xla

    if trust:
        sys.path.insert(0, str(Path.cwd()))
    xla.keep_compiled()
    os.environ.update(xla.single_threaded())
    if devices.present() is not None:
        import jax

        # The accelerator is for the worker.
        jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]


def device(given: str | None) -> devices.Device:
    """The device that an option names."""
    import msgspec

    from germline.errors import InputError

    try:
        return msgspec.convert(given or "auto", devices.Device)
    except msgspec.ValidationError:
        raise InputError(f"--device: {given!r} is not auto, cpu, gpu or tpu") from None


def changes(
    given: list[str] | None,
    *,
    backend: str | None,
    workers: int | None,
    device: str | None,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    insecure: bool,
    audit: float | None = None,
) -> dict[str, Any]:
    """The fields of a spec that options change, by dotted names."""
    engine = {
        "name": backend,
        "workers": workers,
        "device": device,
        "token_file": token_file and str(token_file),
        "certificate": certificate and str(certificate),
        "key": key and str(key),
        "insecure": insecure or None,
        "audit": audit,
    }
    return pairs(given or []) | {f"backend.{k}": v for k, v in engine.items() if v is not None}


def trusted(trust: bool) -> str:
    """What a command to copy ends with, if it is to trust."""
    return " --trust" if trust else ""


def pairs(given: list[str]) -> dict[str, Any]:
    """Read key=value pairs; values are JSON or infinite where they can be, text otherwise."""
    import msgspec

    from germline.address import redact
    from germline.errors import InputError

    settings = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set: {redact(pair)!r} is not key=value")
        try:
            settings[key] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            settings[key] = float(text) if text in ("inf", "+inf", "-inf") else text
    return settings
