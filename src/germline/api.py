"""Germline from Python: train, look back at a run, score an individual."""

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from germline import evaluate, presets
from germline.algorithms import Report
from germline.child import WORKER
from germline.errors import InputError
from germline.files import GenomeFile
from germline.run import engines, fork, loop, prune, recall
from germline.run import spec as specs
from germline.run.loop import Listener
from germline.run.score import Scores, score
from germline.run.spec import Resolved, Spec
from germline.run.stop import Totals
from germline.run.store import Store


class Run:
    """A run in its folder, finished or not. `trust` allows its spec to import modules."""

    def __init__(self, folder: str | Path, *, trust: bool = False) -> None:
        self.folder = Path(folder)
        self.trust = trust
        with self._store():
            pass

    @property
    def spec(self) -> Spec:
        """What it was begun with, all settings written out."""
        return specs.of_run(self.folder)

    @property
    def reports(self) -> list[Report]:
        """What every generation came to."""
        with self._store() as store:
            return store.reports()

    @property
    def totals(self) -> Totals:
        """What all generations came to."""
        with self._store() as store:
            return store.totals()

    @property
    def champion(self) -> GenomeFile:
        """The individual to judge the run by, with all that is needed to play it."""
        return self.individual(champion(self.folder))

    def individual(self, name: str) -> GenomeFile:
        """Any individual that ever lived, by its id or the first digits of it."""
        with self._store() as store:
            name = store.find(name)
        return recall.recall(self.folder, name, trust=self.trust)

    def score(self, episodes: int = 100, *, workers: int | None = 1) -> Scores:
        """How the champion does in fresh episodes."""
        imports = self.spec.imports
        return score(self.champion, episodes, workers=workers, imports=imports, trust=self.trust)

    def resume(
        self,
        changes: Mapping[str, Any] | None = None,
        *,
        listener: Listener | None = None,
    ) -> "Run":
        """Go on; stop rules and the backend may be changed, by dotted names."""
        resolved = go_on(self.folder, changes or {}, trust=self.trust)
        return _evolved(self.folder, resolved, listener, trust=self.trust)

    def fork(
        self, generation: int, out: str | Path, changes: Mapping[str, Any] | None = None
    ) -> "Run":
        """Begin another run with the first generations of this one, and other settings."""
        fork.fork(self.folder, generation, Path(out), changes or {}, trust=self.trust)
        return Run(out, trust=self.trust)

    def prune(self, out: str | Path, include: Collection[str] = ()) -> "Run":
        """Write a small copy to go on with, without those that nobody descends from.

        It has none of the hosts, paths, errors and costs of this run that are not in `include`.
        """
        prune.prune(self.folder, Path(out), include=include, trust=self.trust)
        return Run(out, trust=self.trust)

    def digest(self) -> str:
        """SHA-256 over all individuals and evaluations: equal for equal lineages."""
        with self._store() as store:
            return store.digest()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _store(self) -> Store:
        return Store.open(self.folder)


def train(
    spec: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    trust: bool = False,
) -> Run:
    """Evolve until a stop rule holds: a preset by name, a spec file, or a spec as a dictionary.

    `changes` are fields of the spec by dotted names, `out` is the folder of the run, runs/NAME if
    not given. `listener` is called with (report, totals) after every generation. `trust` allows
    the spec of a file to import modules.

    Tasks, policies and environments that the calling script registers are known to workers too:
    they import the script, so `train` belongs under `if __name__ == "__main__"` there.
    """
    refuse_import("germline.train")
    if isinstance(spec, Mapping):
        given, trust = specs.parse(spec, changes), True
    else:
        given = presets.read(spec, changes)
    evaluate.load(given.imports, trust=trust)
    own = _registered_here(given)
    if own is not None:
        given, trust = _with_module(given, own), True
    resolved = specs.resolve(given, trust=trust)
    engines.check(resolved.engine)
    folder = Path(out) if out is not None else unused(Path("runs") / given.name)
    loop.create(folder, resolved)
    return _evolved(folder, resolved, listener, trust=trust)


def refuse_import(name: str) -> None:
    """Refuse what was called, by its name, where a worker or a run imports the script."""
    if WORKER in os.environ or evaluate.loading:
        raise InputError(f'put {name} under: if __name__ == "__main__"')


def go_on(folder: Path, changes: Mapping[str, Any], *, trust: bool) -> Resolved:
    """What to go on with: the spec of a run, with other stop rules or another backend, kept."""
    with Store.open(folder):
        changed = specs.of_run(folder, changes)
    for name in changes:
        if name.partition(".")[0] not in ("stop", "backend"):
            raise InputError(
                f"--set: {name} would make it another run; "
                f"use germline fork {folder} --generation N --set ..."
            )
    resolved = specs.resolve(changed, trust=trust)
    engines.check(resolved.engine)
    if changes:
        with Store.open(folder, write=True):
            loop.write_spec(folder, resolved.spec)
    return resolved


def champion(folder: Path) -> str:
    """The id of a run's champion."""
    with Store.open(folder) as store:
        reports = store.reports()
    if not reports:
        raise InputError(f"{folder}: has no champion yet: no generation is finished")
    return reports[-1].champion


def unused(folder: Path) -> Path:
    """The folder itself, or with the first number at its end that makes a new one of it."""
    number = 1
    found = folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _evolved(folder: Path, resolved: Resolved, listener: Listener | None, *, trust: bool) -> Run:
    tell: Listener = listener or (lambda report, totals: None)
    with engines.backend_of(resolved.engine, trust=trust) as backend:
        loop.evolve(folder, resolved, backend, listener=tell)
    return Run(folder, trust=trust)


def _registered_here(spec: Spec) -> Any:  # noqa: ANN401 - a module, or None
    """The main module, if what a spec names was registered in it."""
    import gymnasium

    from germline import policies, tasks

    entry = gymnasium.registry.get(str(spec.task.get("id")))
    places = [
        tasks.registry.home(spec.task["name"]),
        tasks.datasets.home(spec.task.get("data")),
        tasks.behaviours.home(spec.task.get("behaviour")),
        policies.registry.home(spec.policy["name"]),
        getattr(entry and entry.entry_point, "__module__", None),
    ]
    return sys.modules["__main__"] if "__main__" in places else None


def _with_module(spec: Spec, main: Any) -> Spec:  # noqa: ANN401 - a module
    """A spec by which workers, and later sessions, import the script that is running.

    What was typed into an interpreter cannot be imported, so this process does the work.
    """
    import msgspec

    path = getattr(main, "__file__", None)
    name = main.__spec__.name if getattr(main, "__spec__", None) else Path(path or "").stem
    if path is None or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        if spec.backend.address is not None:
            raise InputError(
                "backend.name: workers elsewhere cannot import what was typed into an interpreter; "
                "write it to a file"
            )
        backend = msgspec.structs.replace(spec.backend, name="serial")
        return msgspec.structs.replace(spec, backend=backend)
    sys.modules.setdefault(name, main)  # it is here already
    imports = (*(module for module in spec.imports if module != name), name)
    return msgspec.structs.replace(spec, imports=imports)
