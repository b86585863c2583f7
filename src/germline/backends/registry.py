"""The engines by name and by address: a new one is a module or a folder, and a line here."""

from importlib import import_module
from typing import NamedTuple, cast

from germline.address import Address
from germline.backends.protocols import EngineModule
from germline.errors import InputError


class Kind(NamedTuple):
    """An engine, and what users may say about it.

    Its `module`, in this folder, has the functions of `protocols.EngineModule`. It is asked for by
    an address of one of its `schemes`, which have a port in `germline.address`, or by its name
    `alone`. It needs `packages`, by the names they are imported by, from the extra of its name.
    """

    module: str
    schemes: tuple[str, ...] = ()
    alone: bool = False
    packages: tuple[str, ...] = ()
    token: bool = False  # whether master and hosts may share one
    serves: bool = False  # whether the master listens at the address, with a certificate of its own
    cluster: str = ""  # what starts hosts by itself, so that none can join
    grows_by: str = ""  # the command that adds a machine to it


ENGINES = (
    Kind("serial", alone=True),
    Kind("processes", alone=True),
    Kind("grpc", ("grpc",), packages=("grpc", "google"), token=True, serves=True),
    Kind(
        "celery",
        ("amqp", "amqps", "redis", "rediss"),
        packages=("amqp", "celery", "kombu", "redis"),
        token=True,
    ),
    Kind(
        "ray",
        ("ray",),
        alone=True,
        packages=("ray",),
        cluster="a Ray cluster",
        grows_by="ray start",
    ),
)
ALONE = tuple(kind.module for kind in ENGINES if kind.alone)
BY_NAME = {name: kind for kind in ENGINES for name in (kind.module, *kind.schemes)}


def kind_of(name: str | Address) -> Kind:
    """The engine of an address, or of a name that needs none."""
    return BY_NAME[name.scheme if isinstance(name, Address) else name]


def load(name: str | Address) -> EngineModule:
    """The module of an engine; it may need an extra, so it is imported when it is used."""
    kind = kind_of(name)
    try:
        return cast("EngineModule", import_module(f"germline.backends.{kind.module}"))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in kind.packages:
            raise
        given = name.scheme if isinstance(name, Address) else name
        raise InputError(
            f"{given}: {missing} is not here, add it with: pip install 'germline[{kind.module}]'"
        ) from None
