"""How a session of a master is going: counted by it, and asked for by onlookers."""

import math
from typing import Any

import grpc

from germline.address import Address
from germline.backends.grpc import schema
from germline.backends.grpc.connection import CONNECT, channel_to, metadata_of, reason_of
from germline.backends.validate import fault
from germline.errors import InputError
from germline.files import GenomeFile, to_json
from germline.messages import Event, Failure, Key, Lost, Problem, Request


class Progress:
    """Counts what is answered, and keeps the best individual of the session."""

    def __init__(self) -> None:
        self._out: dict[Key, Request] = {}
        self._counted = {"evaluations": 0, "failures": 0, "generation": 0}
        self._best: tuple[float, Request] | None = None

    def ask(self, request: Request) -> None:
        """A request was given out."""
        self._out[request.key] = request

    def forget(self, key: Key) -> None:
        """A request was given up."""
        self._out.pop(key, None)

    def note(self, event: Event) -> None:
        """Something was answered."""
        if isinstance(event, Lost):
            return
        request = self._out.pop(event.key, None)
        self._counted["generation"] = event.key.generation
        if isinstance(event, Failure):
            self._counted["failures"] += 1
        elif request is not None and event.returns:
            self._counted["evaluations"] += 1
            fitness = event.fitness
            better = self._best is None or fitness > self._best[0]
            if better and fault(event, request) is None:
                self._best = fitness, request

    def reply(self, run: str, problem: Problem) -> Any:  # noqa: ANN401 - protobuf
        """What onlookers are told; who works is for others to add.

        The best genome is as a file; statistics of observations are left to the run's own export.
        """
        reply = schema.StatusReply(run=run, best=math.nan, **self._counted)
        if self._best is not None:
            reply.best, request = self._best
            file = GenomeFile(
                request.genome, problem.task, problem.arithmetic, siblings=problem.siblings
            )
            reply.genome = to_json(file)
        return reply


def fetch_status(
    address: Address, *, token: str | None, secure: bool, authority: bytes | None
) -> Any:  # noqa: ANN401 - protobuf
    """Ask a master how its run is, for `germline status`."""
    with channel_to(address, secure=secure, authority=authority) as channel:
        ask = channel.unary_unary(
            f"/{schema.SERVICE}/Status",
            schema.StatusRequest.SerializeToString,
            schema.StatusReply.FromString,
        )
        try:
            return ask(schema.StatusRequest(), timeout=CONNECT, metadata=metadata_of(token))
        except grpc.RpcError as error:
            raise InputError(f"{address.redacted}: {reason_of(error)}") from None
