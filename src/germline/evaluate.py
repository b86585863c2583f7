"""One worker's evaluator: decode, build the policy, play the task."""

import importlib
import math
import time
from collections.abc import Sequence
from itertools import groupby
from typing import cast

import jax
import msgspec
import numpy as np

from germline import policies, proof, tasks
from germline.blobs import BlobCache
from germline.decode import Decoder
from germline.errors import InputError, shorten, told
from germline.messages import Evaluation, Failure, Frozen, Problem, Request, Result, Sums
from germline.policies.normalisation import Context
from germline.policies.protocols import ExactNetwork
from germline.tasks import random_play
from germline.tasks.film import Watch
from germline.tasks.protocols import Episode, Outcome


class Evaluator:
    """Scores individuals of one problem; keeps parents and compiled code from batch to batch."""

    def __init__(
        self, problem: Problem, blobs: BlobCache, *, worker: str = "", trust: bool = False
    ) -> None:
        load(problem.imports, trust=trust)
        self.problem = problem
        self.blobs = blobs
        self.worker = worker
        self.task = tasks.make(problem.task.name, problem.task.settings)
        self.spec = policies.make(problem.policy.name, problem.policy.settings)
        self.proof = self._proven()
        self.decoder = Decoder(policies.layout_of(problem.policy), blobs)
        self._contexts: dict[str | None, Context | None] = {}

    def evaluate(self, requests: Sequence[Request]) -> list[Result]:
        """Score a batch, in the order of the requests."""
        results: list[Result] = []
        for _, group in groupby(requests, self._group):
            results += self._scored(list(group))
        return results

    def film(self, request: Request, watch: Watch, *, drawn: bool) -> list[Outcome]:
        """Play a request's episodes one after another, every step to be looked at."""
        players, episodes = self._prepared([request])
        return [tasks.film(self.task, players, e, watch, drawn=drawn) for e in episodes]

    def close(self) -> None:
        """Let go of what the task holds."""
        self.task.close()

    def _proven(self) -> dict[str, str]:
        """What shows that this machine computes as all others do, where that is promised."""
        if self.problem.arithmetic != "exact":
            return {}
        if jax.default_backend() != "cpu":
            proof.plays(cast(ExactNetwork, self.spec))
        return proof.check(self.problem.task.name)

    def _group(self, request: Request) -> object:
        """What requests that are played at once have in common."""
        if self.task.together:
            return request.context
        if self.problem.siblings:
            return request.context, request.genome.parent_digest or request.genome.digest
        return id(request)  # each alone

    def _scored(self, requests: list[Request]) -> list[Result]:
        started = time.perf_counter()
        try:
            outcomes = self._played(requests)
        except Exception as error:  # a task may fail in any way; the run goes on without it
            if len(requests) == 1:
                reason = told(error)
                return [Failure(requests[0].key, reason, worker=self.worker)]
            return [result for request in requests for result in self._scored([request])]
        seconds = (time.perf_counter() - started) / len(requests)
        return [
            self.result(request, played, seconds)
            for request, played in zip(requests, outcomes, strict=True)
        ]

    def _prepared(self, requests: list[Request]) -> tuple[tasks.Players, list[Episode]]:
        """Who plays, and what; all requests have the same context."""
        context = self.context(requests[0].context)
        genomes = [request.genome for request in requests]
        arithmetic = self.problem.arithmetic
        siblings = self.problem.siblings
        players = tasks.Players(self.spec, self.decoder, genomes, arithmetic, context, siblings)
        episodes = [
            Episode(player, seed, request.cap)
            for player, request in enumerate(requests)
            for seed in request.episode_seeds
        ]
        return players, episodes

    def _played(self, requests: list[Request]) -> list[list[Outcome]]:
        players, episodes = self._prepared(requests)
        found = self.task.play(players, episodes)
        if len(found) != len(episodes):
            raise ValueError(f"the task gave {len(found)} outcomes for {len(episodes)} episodes")
        outcomes = iter(found)
        return [[next(outcomes) for _ in request.episode_seeds] for request in requests]

    def context(self, digest: str | None) -> Context | None:
        """What a generation has in common, by the hash of its blob; the same object every time.

        Without a blob, it is what follows from the task: a reference batch, if the policy has one.
        """
        if digest in self._contexts:
            return self._contexts[digest]
        if digest is None:
            self._contexts = {None: random_play.context(self.task, self.spec)}
            return self._contexts[None]
        frozen = msgspec.msgpack.decode(self.blobs[digest], type=Frozen)
        shape = getattr(self.spec, "observation", (len(frozen.mean),))
        mean, std = (
            np.array(part, np.float32).reshape(shape) for part in (frozen.mean, frozen.std)
        )
        self._contexts = {digest: Context(mean, std)}
        return self._contexts[digest]

    def result(self, request: Request, outcomes: Sequence[Outcome], seconds: float) -> Result:
        """The evaluation of a request by what came of its episodes, or why it is a failure."""
        scores = tuple([float(outcome.score) for outcome in outcomes])
        if not all(map(math.isfinite, scores)):
            reason = f"its returns are {shorten(str(list(scores)))}"
            return Failure(request.key, reason, worker=self.worker)
        described = {len(outcome.behaviour) for outcome in outcomes}
        if len(described) > 1:
            reason = f"the behaviours of its episodes are of {sorted(described)} numbers"
            return Failure(request.key, reason, worker=self.worker)
        behaviour = outcomes[0].behaviour
        if len(outcomes) > 1:
            behaviour = tuple(np.mean([o.behaviour for o in outcomes], axis=0).tolist())
        found = Evaluation(
            request.key,
            scores,
            tuple([int(outcome.steps) for outcome in outcomes]),
            tuple([int(outcome.frames) for outcome in outcomes]),
            "".join([outcome.end for outcome in outcomes]),
            behaviour,
            _added([o.sums for o in outcomes if o.sums is not None]),
            seconds,
            self.worker,
        )
        sums = found.observation_sums
        others = found.behaviour if sums is None else (*found.behaviour, *sums.total, *sums.squares)
        if not all(map(math.isfinite, others)):
            reason = "what it observed or did is not finite"
            return Failure(request.key, reason, worker=self.worker)
        return found


loading: list[str] = []
"""Modules that are being imported now, which must not begin runs of their own."""


def load(modules: Sequence[str], *, trust: bool) -> None:
    """Import the modules that register a run's own tasks and policies: code, so only if trusted."""
    if modules and not trust:
        raise InputError(f"imports: {', '.join(modules)} is code; add --trust to run it")
    for module in modules:
        loading.append(module)
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            where = "looked for in the current folder and on PYTHONPATH"
            raise InputError(f"imports: {module}: {error}; {where}") from None
        except ImportError as error:
            raise InputError(f"imports: {module}: {error}") from None
        except (Exception, SystemExit) as error:
            reason = told(error)
            raise InputError(f"imports: {module}: {reason}") from None
        finally:
            loading.remove(module)


def _added(parts: Sequence[Sums]) -> Sums | None:
    """Sums of several episodes, added in their order."""
    if not parts:
        return None
    total = np.sum([part.total for part in parts], axis=0)
    squares = np.sum([part.squares for part in parts], axis=0)
    count = sum(part.count for part in parts)
    return Sums(count, tuple(total.tolist()), tuple(squares.tolist()))
