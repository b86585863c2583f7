"""The engine that a spec names, with the secrets and files it needs."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from germline import address, disk
from germline import device as devices
from germline.backends import Backend, Processes, Serial
from germline.errors import InputError
from germline.run.spec import Engine

MAX_PEM = 2**16  # bytes of a certificate or key
WORDS = {"certificate": b"CERTIFICATE-----", "key": b"PRIVATE KEY-----"}
# What a missing package is part of, by the name it is imported by.
EXTRAS = dict.fromkeys(("amqp", "celery", "kombu", "redis"), "celery") | {
    "grpc": "grpc",
    "google": "grpc",
    "ray": "ray",
}


def check(engine: Engine) -> None:
    """Refuse what `backend_of` would refuse, before anything is written."""
    place = engine.address
    if place is None or engine.workers:
        devices.choose(engine.device)
    ray = engine.name == "ray" or (place is not None and place.scheme == "ray")
    if ray and engine.device != "auto":
        raise InputError("backend.device: hosts of a Ray cluster find their own; leave it out")
    if engine.name == "ray":
        module_of("ray")
    if place is None:
        return
    if place.incomplete:
        raise InputError(
            f"backend.name: the password of {place.redacted} is not kept with a run; "
            "give --backend again, or GERMLINE_BACKEND"
        )
    _pem(engine)
    exposed = place.scheme == "grpc" and not place.loopback and not engine.insecure
    if _token(engine) is None and exposed:
        raise InputError(
            "backend.name: others can reach this address, so give a token, with --token-file or "
            f"in {address.TOKEN}, or say backend.insecure = true"
        )
    module_of(place.scheme)


def backend_of(
    engine: Engine, *, trust: bool = False, warn: Callable[[str], None] = lambda text: None
) -> Backend:
    """The engine that a spec names; `warn` hears what may be a mistake."""
    if engine.name == "serial":
        return Serial(trust=trust)
    place = engine.address
    made: Backend
    if engine.name == "ray" or (place is not None and place.scheme == "ray"):
        made = module_of("ray").Ray(place, workers=engine.workers or 0, trust=trust, warn=warn)
        return made
    if place is None:
        return Processes(engine.workers, trust=trust, device=engine.device, slots=engine.slots)
    check(engine)
    module, token, workers = module_of(place.scheme), _token(engine), engine.workers or 0
    if place.scheme == "grpc":
        certificate, key = _pem(engine)
        made = module.Grpc(
            place,
            token=token,
            certificate=certificate,
            key=key,
            workers=workers,
            device=engine.device,
            trust=trust,
        )
        return made
    if not place.loopback and not place.password:
        warn(f"{place.redacted}: has no password, and whoever reaches it could change results")
    made = module.Celery(place, token=token, workers=workers, device=engine.device, trust=trust)
    return made


def module_of(scheme: str) -> ModuleType:
    """The engine's module; it needs an extra, so it is imported when it is used."""
    name = scheme if scheme in ("grpc", "ray") else "celery"
    try:
        return import_module(f"germline.backends.{name}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        extra = EXTRAS[missing]
        raise InputError(
            f"{scheme}: {missing} is not here, add it with: pip install 'germline[{extra}]'"
        ) from None


def _token(engine: Engine) -> str | None:
    return address.token(None if engine.token_file is None else Path(engine.token_file))


def _pem(engine: Engine) -> tuple[bytes | None, bytes | None]:
    """Certificate and key of this master."""
    return (
        read_pem("backend.certificate", "certificate", engine.certificate),
        read_pem("backend.key", "key", engine.key),
    )


def read_pem(source: str, kind: str, name: str | Path | None) -> bytes | None:
    """A certificate or a key from a file, if one is given; `source` is what errors call it."""
    if name is None:
        return None
    path = Path(name)
    try:
        large = disk.regular_size(path) > MAX_PEM
        data = b"" if large else path.read_bytes()
    except OSError as error:
        raise InputError(f"{source}: {path}: {error.strerror or error}") from None
    if large:
        raise InputError(f"{source}: {path}: over {MAX_PEM // 1024} KiB, too large for one")
    if b"-----BEGIN" not in data or WORDS[kind] not in data:
        raise InputError(f"{source}: {path}: is not a {kind} in PEM")
    return data
