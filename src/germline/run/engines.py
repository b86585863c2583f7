"""The engine that a spec names, with the secrets and files it needs."""

from collections.abc import Callable
from pathlib import Path

from germline import address, disk
from germline import device as devices
from germline.address import Address
from germline.backends import Backend, registry
from germline.backends.protocols import MasterSettings
from germline.errors import InputError
from germline.run.spec import Engine

MAX_PEM = 2**16  # bytes of a certificate or key
WORDS = {"certificate": b"CERTIFICATE-----", "key": b"PRIVATE KEY-----"}


def check(engine: Engine) -> None:
    """Refuse what `backend_of` would refuse, before anything is written."""
    place = engine.address
    kind = registry.kind_of(place or engine.name)
    if place is None or engine.workers:
        devices.choose(engine.device)
    if kind.cluster and engine.device != "auto":
        raise InputError(f"backend.device: hosts of {kind.cluster} find their own; leave it out")
    if place is not None:
        _check_secrets(engine, place, serves=kind.serves)
    registry.load(place or engine.name)


def backend_of(
    engine: Engine, *, trust: bool = False, warn: Callable[[str], None] = lambda text: None
) -> Backend:
    """The engine that a spec names; `warn` hears what may be a mistake."""
    place = engine.address
    kind = registry.kind_of(place or engine.name)
    if kind.token:
        check(engine)
    certificate, key = _pem(engine) if kind.serves else (None, None)
    settings = MasterSettings(
        address=place,
        workers=engine.workers,
        device=engine.device,
        slots=engine.slots,
        token=_token(engine) if kind.token else None,
        certificate=certificate,
        key=key,
        trust=trust,
        warn=warn,
    )
    return registry.load(place or engine.name).make(settings)


def _check_secrets(engine: Engine, place: Address, *, serves: bool) -> None:
    if place.incomplete:
        raise InputError(
            f"backend.name: the password of {place.redacted} is not kept with a run; "
            "give --backend again, or GERMLINE_BACKEND"
        )
    _pem(engine)
    exposed = serves and not place.loopback and not engine.insecure
    if _token(engine) is None and exposed:
        raise InputError(
            "backend.name: others can reach this address, so give a token, with --token-file or "
            f"in {address.TOKEN}, or say backend.insecure = true"
        )


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
