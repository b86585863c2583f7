"""`germline status`: how the run of a gRPC master is going."""

from typing import Any

from germline import address as addresses
from germline.cli.options import AsJson
from germline.cli.output import say, say_json
from germline.cli.worker import (
    AUTHORITY,
    Authority,
    Insecure,
    TokenFile,
    Url,
    address_of,
    is_secure,
)
from germline.errors import InputError


def status(
    url: Url = None,
    token_file: TokenFile = None,
    authority: Authority = None,
    insecure: Insecure = False,
    json: AsJson = False,
) -> None:
    """How the run of a gRPC master is: evaluations, the best genome, who works."""
    where = address_of(url)
    if where.scheme != "grpc":
        raise InputError(f"{where.scheme} has no master to ask; look with germline show RUN")
    token = addresses.token(token_file)
    from germline.backends import registry
    from germline.run import engines

    registry.load(where)  # which may not be installed
    from germline.backends.grpc import fetch_status

    signed = engines.read_pem(*AUTHORITY, authority)
    secure = is_secure(where, insecure, authority)
    reply = fetch_status(where, token=token, secure=secure, authority=signed)
    if json:
        say_json(_plain(reply))
        return
    say(
        f"run {reply.run or '-'}, generation {reply.generation}: {reply.evaluations:,} "
        f"evaluations, {reply.failures:,} failures in this session, best {reply.best:,.6g}"
    )
    for host in reply.workers:
        say(
            f"  {host.name}: {host.slots} processes, {host.done:,} done, {host.holds:,} here, "
            f"heard of {host.silent:.1f} s ago"
        )
    if not reply.workers:
        say("  nobody has joined")


def _plain(reply: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    import math

    import msgspec

    fields = ("name", "slots", "holds", "done", "silent")
    return {
        "run": reply.run,
        "generation": reply.generation,
        "evaluations": reply.evaluations,
        "failures": reply.failures,
        "waiting": reply.waiting,
        "best": reply.best if math.isfinite(reply.best) else None,
        "genome": msgspec.json.decode(reply.genome) if reply.genome else None,
        "workers": [{field: getattr(host, field) for field in fields} for host in reply.workers],
    }
