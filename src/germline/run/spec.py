"""The spec of a run: a TOML file that says everything its lineage depends on.

germline = 1                   the version of this format
name = "cartpole"
seed = 1

[task]                         a registered task and its settings
name = "functional"
id = "CartPole-v1"

[policy]                       a registered policy; what the task decides may be left out
name = "mlp"
hidden = [32]

[algorithm]                    ga, es, ns-ga or another of docs/algorithms.md, and its settings
name = "ga"
population = 256

[stop]                         the first rule that holds ends the run
score = 475.0

[backend]                      who evaluates; the lineage does not depend on it
name = "processes"             or an address, such as "grpc://127.0.0.1:50051"
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from germline import address
from germline import settings as written
from germline.address import Address
from germline.backends import registry
from germline.device import Device
from germline.errors import InputError
from germline.files import MAX_SIBLINGS, Arithmetic
from germline.genome import MAX_GENES, Uint32
from germline.messages import Problem
from germline.run import toml
from germline.run.stop import Stop

FORMAT = 1
MAX_BYTES = 2**16

Module = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*\Z", max_length=200)]
Title = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
Table = dict[str, Any]


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who evaluates: this process alone (`serial`), `processes` of this machine, or those of many.

    For many, `name` is the address where this process serves them (grpc), or that of the broker
    they all know (amqp, redis), or that of a Ray cluster; `ray` alone is the cluster of RAY_ADDRESS
    or one made here. `workers` are processes that are started here, if not said one per core, or
    none where others come; on a Ray cluster, the cores to use, if not said all. `token_file` has
    the secret that all share; `certificate` and `key` are PEM files, `insecure` does without them
    where others can listen.

    `device` is what the processes of this machine compute on: its accelerator if there is one,
    unless `cpu` is said; `slots` is how many episodes are under way there, if not said 8 for
    each worker.

    `price` is what an hour of one worker costs. A worker that has not answered for `patience`
    seconds is taken to be frozen. A share of `audit` of all evaluations is done twice.
    """

    name: str = "processes"
    workers: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    device: Device = "auto"
    slots: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None
    price: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    patience: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    audit: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        if self.name in registry.ALONE:
            return
        if not any(sign in self.name for sign in ":/@"):
            hint = written.nearest(self.name, registry.ALONE)
            given = f"{self.name[:64]!r} is neither one of them nor an address"
            raise InputError(f"name: {given}, such as grpc://127.0.0.1:50051; {hint}")
        try:
            address.parse(self.name)
        except InputError as error:
            raise InputError(f"name: {error}") from None

    @property
    def address(self) -> Address | None:
        """Where others are met, if it is not this machine alone that works."""
        return None if self.name in registry.ALONE else address.parse(self.name)

    @property
    def public(self) -> "Engine":
        """The same without the secrets of its address, which are never written."""
        if self.address is None:
            return self
        return msgspec.structs.replace(self, name=self.address.redacted)


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A spec as written. `resolve` turns it into what can run.

    `imports` are modules that register tasks, policies or environments of your own; they are code,
    so the command line wants `--trust`. `lineage` is the number of genes that exact arithmetic is
    fitted to. With `siblings`, so many children of a parent are computed in shared products, which
    needs `lowrank` mutations and floats. The state is kept every `checkpoint` generations.
    """

    germline: int = FORMAT
    name: Title = "run"
    seed: Uint32 = 1
    imports: tuple[Module, ...] = ()
    arithmetic: Arithmetic = "float32"
    lineage: Annotated[int, msgspec.Meta(ge=0, le=MAX_GENES)] = 500
    siblings: Annotated[int, msgspec.Meta(ge=0, le=MAX_SIBLINGS)] = 0
    checkpoint: Annotated[int, msgspec.Meta(ge=1)] = 10
    task: Table
    policy: Table
    algorithm: Table
    stop: Stop = Stop()
    backend: Engine = Engine()


@dataclass(frozen=True)
class Resolved:
    """A spec that can run: all settings written out, the algorithm, and what workers are told.

    The spec is as others may see it; `engine` alone has the secrets of an address.
    """

    spec: Spec
    problem: Problem
    algorithm: Any
    engine: Engine


def read(
    path: Path, overrides: Mapping[str, Any] | None = None, *, source: str | None = None
) -> Spec:
    """Read a TOML file; `overrides` are dotted names such as "algorithm.population".

    `source` is what errors call the file, if not by its path.
    """
    source = source or str(path)
    values = toml.read(path, source, "spec", MAX_BYTES)
    try:
        return parse(values, overrides)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def of_run(folder: Path, overrides: Mapping[str, Any] | None = None) -> Spec:
    """Read the spec in the folder of a run."""
    return read(folder / "spec.toml", overrides)


def parse(values: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Spec:
    """Check what was written; names of tasks, policies and algorithms are looked at later."""
    values = override(values, _without_meaning(overrides or {}) | dict(overrides or {}))
    version = values.get("germline", FORMAT)
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"germline: {version!r} is not the version of a spec; this is {FORMAT}")
    if version != FORMAT:
        newer = "is newer than this program, which reads" if version > FORMAT else "is not"
        raise InputError(f"germline: {version} {newer} {FORMAT}")
    for name in ("task", "policy", "algorithm"):
        table = values.get(name)
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise InputError(f"{name}: a table with a name is needed, such as [{name}] name = ...")
    for name, table in values.items():
        if _holds_none(table):
            raise InputError(f"{name}: a value is null, which TOML cannot say; leave it out")
    nested: dict[str, Any] = {}
    for name, kind in (("stop", Stop), ("backend", Engine)):
        table = values.get(name, {})
        if not isinstance(table, Mapping):
            raise InputError(f"{name}: must be a table")
        if name == "backend" and not isinstance(table.get("name", ""), str):
            raise InputError("backend.name: is text, such as processes")  # and maybe a secret
        nested[name] = written.convert(table, kind, f"{name}.")
    plain = {k: v for k, v in values.items() if k not in nested}
    return msgspec.structs.replace(written.convert(plain, Spec), **nested)


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Give values with some replaced, by dotted names; None takes a field away."""
    changed = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    for name, given in overrides.items():
        value = dict(given) if isinstance(given, Mapping) else given
        table, dot, field = name.partition(".")
        if not dot and value is None:
            changed.pop(name, None)
        elif not dot:
            changed[name] = value
        elif isinstance(changed.setdefault(table, {}), dict):
            if value is None:
                changed[table].pop(field, None)
            else:
                changed[table][field] = value
        else:
            raise InputError(f"{name}: {table} is not a table")
    return changed


def _without_meaning(overrides: Mapping[str, Any]) -> dict[str, None]:
    """What another engine takes away: settings as written that are of no use to it."""
    name = overrides.get("backend.name")
    if not isinstance(name, str):
        return {}
    kind = registry.BY_NAME.get(name.partition(":")[0].lower())
    token = () if kind is not None and kind.token else ("token_file",)
    tls = () if kind is not None and kind.serves else ("certificate", "key", "insecure")
    return {f"backend.{field}": None for field in token + tls}


def _holds_none(value: object) -> bool:
    """Whether there is a None anywhere in plain data."""
    if isinstance(value, Mapping):
        return any(map(_holds_none, value.values()))
    return any(map(_holds_none, value)) if isinstance(value, list) else value is None


def resolve(spec: Spec, *, trust: bool = False) -> Resolved:
    """Build all parts once, so that a mistake is found before anything is written or started."""
    from germline import algorithms, policies, tasks
    from germline.evaluate import load
    from germline.run import checks
    from germline.tasks import fitting

    load(spec.imports, trust=trust)
    task = tasks.make(*_named(spec.task))
    space = task.space()
    algorithm = algorithms.make(*_named(spec.algorithm))
    policy = fitting.fit(*_named(spec.policy), space)
    if spec.arithmetic == "exact":
        checks.exact(space, task, policy)
        policy = _with_steps(spec, policy, algorithm)
    checks.normaliser(spec, task, policy)
    reference = policies.reference(spec.policy["name"], policy)
    checks.algorithm(algorithm, task, policy)
    checks.siblings(spec, task, policy, algorithm)
    checks.engine(spec)
    task.close()
    problem = Problem(
        tasks.reference(task), reference, spec.arithmetic, spec.imports, spec.siblings
    )
    whole = msgspec.structs.replace(
        spec,
        task={"name": spec.task["name"], **problem.task.settings},
        policy={"name": spec.policy["name"], **reference.settings},
        algorithm={"name": spec.algorithm["name"], **msgspec.to_builtins(algorithm)},
        backend=spec.backend.public,
    )
    return Resolved(whole, problem, algorithm, spec.backend)


def _with_steps(spec: Spec, policy: Any, algorithm: Any) -> Any:  # noqa: ANN401
    """A network with steps for exact arithmetic, if it has none: they follow from the mutations."""
    if getattr(policy, "steps", None) is not None:
        return policy
    from germline import operators, policies

    sigma = getattr(algorithm, "sigma", 0.002)
    largest = sigma if isinstance(sigma, float) else max(sigma.start, sigma.end)
    # What is drawn anew does not grow with age.
    anew = operators.draws_anew(getattr(algorithm, "operator", ""))
    return policies.exact(policy, sigma=largest, genes=1 if anew else spec.lineage)


def _named(table: Table) -> tuple[str, Table]:
    return table["name"], {key: value for key, value in table.items() if key != "name"}


def to_toml(spec: Spec) -> str:
    """Write a spec, without its secrets."""
    public = msgspec.structs.replace(spec, backend=spec.backend.public)
    return toml.text(msgspec.to_builtins(public))
