"""`germline deploy`: a spec becomes the files that bring it to a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from germline.cli import options
from germline.cli.options import AsJson, Set, SpecName, Trust
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted
from germline.errors import InputError
from germline.settings import nearest

if TYPE_CHECKING:
    from germline.deploy.plan import Files
    from germline.run.spec import Spec

TARGETS = ("docker", "compose", "kubernetes", "kuberay", "slurm", "aws")
ENGINES = {"compose": "rabbitmq", "kuberay": "ray"}  # grpc elsewhere


def _complete_target(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def deploy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="docker, compose, kubernetes, kuberay, slurm or aws.",
            autocompletion=_complete_target,
        ),
    ],
    spec: SpecName,
    out: Annotated[Path, typer.Option(help="The folder of the files.")],
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            help="How many, at most; of slurm, nodes. 8, on aws 180.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="What the image is called, with its registry if it has one."),
    ] = None,
    broker: Annotated[
        Literal["grpc", "rabbitmq"] | None,
        typer.Option(help="Where workers meet the master of docker or kubernetes; grpc."),
    ] = None,
    set_: Set = None,
    trust: Trust = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files in --out that differ.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Write the files that bring a run to a cluster, and say how to start it."""
    if target not in TARGETS:
        raise InputError(f"{target[:64]!r} is not a target; {nearest(target, TARGETS)}")
    if broker is not None and target not in ("docker", "kubernetes"):
        raise InputError(f"--broker: is for docker and kubernetes; {target} has but one way")
    if image is not None and target == "slurm":
        raise InputError("--image: slurm runs Germline as it is installed there, without images")
    options.prepare(trust)
    from germline import presets
    from germline.deploy.write import write
    from germline.run import spec as specs

    given = presets.read(spec, options.pairs(set_ or []))
    specs.resolve(given, trust=trust)
    made, start = _files(target, given, workers, image, broker, trust)
    written = write(out, made, force=force)
    command = _command(out, start, target)
    if json:
        found = {"target": target, "files": sorted(made), "start": command}
        say_json({"folder": str(out), **found, "written": sorted(map(str, written))})
        return
    for path in sorted(written):
        say(f"  {path}")
    if own := _own(made):
        say(f"The image has {', '.join(own)} of yours; name in imports what else it is to have.")
    say(f"{out}: {counted(len(made), 'file')}, {len(written)} written. Start with: {command}")


def _files(
    target: str,
    spec: "Spec",
    workers: int | None,
    image: str | None,
    broker: str | None,
    trust: bool,
) -> tuple["Files", str]:
    """The files of a target, and which of them starts it."""
    from importlib import import_module

    from germline.deploy import plan

    module = import_module(f"germline.deploy.{target}")
    if target == "slurm":
        settings = module.Settings(nodes=workers or 8, trust=trust)
        return module.files(spec, settings), f"sbatch {module.JOB}"
    count = workers or (module.WORKERS if target == "aws" else 8)
    engine = broker or ENGINES.get(target, "grpc")
    planned = plan.make(spec, workers=count, image=image, engine=engine)
    return module.files(planned), module.START


def _own(made: "Files") -> list[str]:
    """The user's modules among the files, and their packages as folders."""
    from germline.deploy.docker import CODE

    paths = [name.removeprefix("image/").split("/") for name in made]
    inner = [path[1:] for path in paths if path[0] == CODE]
    return sorted({path[0] if len(path) == 1 else f"{path[0]}/" for path in inner})


def _command(out: Path, start: str, target: str) -> str:
    """The one command that starts it all, with what Germline's wheel is made of here."""
    import shlex

    if target == "slurm":
        return f"cd {shlex.quote(str(out))} && {start}"
    source = _source()
    place = "ZONE=... VPC=... SUBNET=... " if target == "aws" else ""
    return place + shlex.join([str(out / start), *([source] if source else [])])


def _source() -> str:
    """The checkout or wheel that this Germline was installed from; nothing if it is a release."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution("germline").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    place = urlsplit(json.loads(text)["url"]) if text else None
    return unquote(place.path) if place is not None and place.scheme == "file" else ""
