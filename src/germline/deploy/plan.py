"""What is brought to a cluster: a spec that was checked, and what its image has to hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import germline
from germline import disk
from germline.errors import InputError
from germline.run import outline
from germline.run import spec as specs
from germline.run.spec import Engine, Spec

PORT = 50051  # where the master serves
USER = 10001  # who containers run as
DRAIN = 90  # seconds that a worker takes to go
HOME = "/opt/germline"  # of the spec and the scripts, in the image
SECRETS = "/run/secrets/germline"  # where containers find theirs
ENGINES = {"grpc": ("grpc",), "rabbitmq": ("celery",), "ray": ("ray",)}  # and their extras
MAX_CODE = 2**24  # bytes of a user's own modules and their data

Files = dict[str, str | bytes]  # by path

_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,199}\Z")


@dataclass(frozen=True)
class Plan:
    """A run to be deployed.

    `spec` is as it was written, but for the engine, which is the target's. `image` is what
    containers are made of, `extras` and `packages` what is installed in it, `code` the user's own
    modules and their data by path. `workers` evaluate, and meet the master at `broker`: grpc,
    rabbitmq or ray.
    """

    spec: Spec
    image: str
    workers: int
    broker: str
    extras: tuple[str, ...]
    packages: tuple[str, ...] = ()
    code: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name as hosts and namespaces may be called."""
        return label(self.spec.name)

    @property
    def environment_field(self) -> str | None:
        """The setting by which the task names its environment, if it has one."""
        return outline.environment_field(self.spec.task)

    @property
    def values(self) -> dict[str, Any]:
        """What every template may ask for."""
        return {
            "name": self.name,
            "image": self.image,
            "joint": "-" if ":" in self.image.rpartition("/")[2] else ":",  # before one more tag
            "workers": self.workers,
            "port": PORT,
            "user": USER,
            "drain": DRAIN,
            "grace": DRAIN + 30,
            "home": HOME,
            "secrets": SECRETS,
            "trust": " --trust" if self.spec.imports else "",
            "version": germline.__version__,
        }


def make(spec: Spec, *, workers: int, image: str | None, engine: str) -> Plan:
    """Plan a run, whose spec can be resolved, for an engine: grpc, rabbitmq or ray."""
    image = image or f"germline-{label(spec.name)}:{germline.__version__}"
    if not _IMAGE.match(image):
        raise InputError(f"--image: {image[:80]!r} is not the name of an image, such as me/run:1")
    packages, code = _own(spec.imports)
    return Plan(
        spec=msgspec.structs.replace(spec, backend=_engine(spec.backend, engine)),
        image=image,
        workers=workers,
        broker=engine,
        extras=tuple(sorted({*_extras(spec), *ENGINES[engine], "tensorboard"})),
        packages=packages,
        code=code,
    )


def toml(plan: Plan) -> str:
    """The spec as the master reads it."""
    return specs.to_toml(plan.spec)


def label(name: str) -> str:
    """A name in small letters, digits and hyphens, as hosts have them."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"


def portable(given: Engine) -> Engine:
    """An engine's settings that hold anywhere."""
    return Engine(price=given.price, patience=given.patience, audit=given.audit)


def _engine(given: Engine, engine: str) -> Engine:
    """The spec's own settings that hold anywhere, and where the master meets others."""
    kept = portable(given)
    if engine == "grpc":
        return msgspec.structs.replace(
            kept,
            name=f"grpc://0.0.0.0:{PORT}",
            token_file=f"{SECRETS}/token",
            certificate=f"{SECRETS}/certificate.pem",
            key=f"{SECRETS}/key.pem",
        )
    if engine == "rabbitmq":  # its password comes with the address, which is a secret
        return msgspec.structs.replace(kept, name="amqp://broker/", token_file=f"{SECRETS}/token")
    return msgspec.structs.replace(kept, name=engine)


def _extras(spec: Spec) -> set[str]:
    """What a task needs besides Germline itself."""
    task = spec.task
    if task["name"] == "atari":
        return {"atari"}
    if task["name"] == "functional" and task.get("suite", "gymnasium") != "gymnasium":
        return {"jax-envs"}
    if task["name"] == "gym":
        import gymnasium

        entry = str(gymnasium.spec(task["id"]).entry_point)
        return {kind for kind in ("box2d", "mujoco") if entry.startswith(f"gymnasium.envs.{kind}")}
    return set()


def _own(imports: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The packages that a spec's modules came with, and the source of those that are its own.

    A package that was installed from a folder or an address is its own, too: an index may have
    another by its name.
    """
    from importlib.metadata import distribution, packages_distributions

    packages: set[str] = set()
    code: dict[str, bytes] = {}
    owners = packages_distributions() if imports else {}
    for top in dict.fromkeys(name.partition(".")[0] for name in imports):
        if top == germline.__name__:
            continue  # it is there already
        owned = [distribution(name) for name in owners.get(top, [])[:1]]
        if owned and owned[0].read_text("direct_url.json") is None:
            packages.add(f"{owned[0].name}=={owned[0].version}")
        else:
            code |= _source(top, MAX_CODE - sum(map(len, code.values())))
    return tuple(sorted(packages)), code


def _source(name: str, room: int) -> dict[str, bytes]:
    """The bytes of a module, or of all that is in the folder of a package, by path."""
    from importlib.util import find_spec

    found = find_spec(name)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise InputError(f"imports: {name}: is no Python source, so it cannot go into an image")
    origin = Path(found.origin)
    inner = [origin]
    if found.submodule_search_locations:
        origin = origin.parent
        inner = [path for path in sorted(origin.rglob("*")) if _is_kept(path, origin)]
    code: dict[str, bytes] = {}
    for path in inner:
        try:
            room -= disk.regular_size(path)
            if room < 0:
                limit = f"over {MAX_CODE // 2**20} MiB with all before it"
                raise InputError(f"imports: {name}: {limit}, too large for an image")
            code[path.relative_to(origin.parent).as_posix()] = path.read_bytes()
        except OSError as error:
            raise InputError(f"imports: {path}: {error.strerror or error}") from None
    return code


def _is_kept(path: Path, folder: Path) -> bool:
    """Whether a file is part of a package, rather than of what tools have left there."""
    parts = path.relative_to(folder).parts
    left = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return not left and path.is_file()
