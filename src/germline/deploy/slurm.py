"""A run, or several that differ in seed and environment, as one job of a Slurm cluster.

`files` gives a job script and a spec per run. Each run is a task of the job's array: its first
node is the master, every node works, and near the time limit it is stopped, queued again and gone
on with. Runs are kept on a disk of the node, for stores do not work on network file systems, and
copied to the folder that all nodes share.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from germline.deploy import render
from germline.deploy.plan import portable
from germline.errors import InputError
from germline.run import outline
from germline.run import spec as specs
from germline.run.spec import Spec

JOB = "job.sh"

_TIME = re.compile(
    r"(?:(?P<days>\d{1,4})-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?"
    r"|(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)|(?P<only>\d+))"
)
_UNITS = {
    **{"days": 86400, "h": 3600, "m": 60, "s": 1},
    **{"hours": 3600, "minutes": 60, "seconds": 1, "only": 60},
}
_WORD = re.compile(r"[A-Za-z0-9_][\x21-\x7e]*")  # a value of sbatch
_OPTION = re.compile(r"[a-z][a-z-]*(=[\x21-\x7e]+)?")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")  # not in the name of a folder
_QUOTES = re.compile(r"""[%"'`$&|\\\x00-\x1f\x7f]""")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_OURS = {
    *("account", "array", "job-name", "nodes", "open-mode", "output", "partition", "requeue"),
    *("signal", "time", "wait"),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks of Slurm, and how it behaves there.

    `cpus` of every node are asked for, or whole nodes if not said; `processes` work on each, one
    per core if not said. `time`, `partition` and `account` are Slurm's; `options` are more of
    sbatch, such as "qos=long". `setup` are lines of shell that come first, such as "module load
    python". `job` is the job's name, germline-NAME if not said. At most `at_once` runs work at a
    time.

    `margin` seconds before the time limit a run is stopped, to be queued again, `requeues` times at
    most. It is kept in `scratch` on the node, TMPDIR or /tmp if not said, whose $VARIABLES are
    those of the node, and copied every `every` seconds to `folder`, which is where the files are as
    all nodes see it; if not said, the one that sbatch is called in. `insecure` does without TLS
    between nodes, `trust` lets specs import code.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    cpus: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    processes: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    at_once: Annotated[int, msgspec.Meta(ge=1)] | None = None
    margin: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 300
    requeues: Annotated[int, msgspec.Meta(ge=0)] = 100
    every: Annotated[int, msgspec.Meta(ge=1)] = 300
    scratch: str | None = None
    folder: str | None = None
    job: str | None = None
    python: str = "python3"
    insecure: bool = False
    trust: bool = False

    def __post_init__(self) -> None:
        for name in ("partition", "account"):
            value = getattr(self, name)
            if value is not None and not _WORD.fullmatch(value):
                raise InputError(f"{name}: {value!r} is not a name")
        for option in self.options:
            name = option.partition("=")[0]
            if not _OPTION.fullmatch(option):
                raise InputError(f"sbatch: {option!r} is not name=value, such as qos=long")
            if any(ours.startswith(name) for ours in _OURS):  # sbatch knows them abridged too
                raise InputError(f"sbatch: {name} is what germline says itself, by its own options")
        for line in self.setup:
            if not line.isprintable():
                raise InputError(f"setup: {line!r} is not one line")
        if self.scratch is not None:
            _in_script(self.scratch)
        if self.folder is not None and (found := _QUOTES.search(self.folder)):
            raise InputError(f"{self.folder}: {found[0]!r} cannot be in the path of a job")
        if self.time is not None and seconds(self.time) <= self.margin:
            raise InputError(f"time: {self.time} leaves nothing beside a margin of {self.margin} s")


DEFAULTS = Settings()


def seconds(time: str) -> int:
    """A time limit as Slurm writes it: minutes, [H:]M:S, D-H, D-H:M or D-H:M:S."""
    found = _TIME.fullmatch(time)
    total = (
        0
        if found is None
        else sum(int(value) * _UNITS[unit] for unit, value in found.groupdict().items() if value)
    )
    if not total:
        raise InputError(f"time: {time!r} is not a time limit, such as 05:00:00 or 1-12:00:00")
    return total


def _in_script(scratch: str) -> str:
    """A folder of the node as the script writes it: variables are left to the node."""
    begin = _VARIABLE.match(scratch)
    if begin is None and not scratch.startswith("/"):
        raise InputError(f"scratch: {scratch!r} begins neither with / nor with a $VARIABLE")
    if found := _QUOTES.search(_VARIABLE.sub("", scratch)):
        raise InputError(f"scratch: {found[0]!r} cannot be in the path {scratch!r}")
    return '"' + _VARIABLE.sub(r"${\1\2:?is not set on this node}", scratch) + '"'


def variants(spec: Spec, seeds: Sequence[int] = (), envs: Sequence[str] = ()) -> dict[str, Spec]:
    """Every environment with every seed, by a name for its folder; the spec's own if none is given.

    Who evaluates is left out, for that is up to the job.
    """
    field = outline.environment_field(spec.task)
    if envs and field is None:
        raise InputError(f"envs: the task {spec.task['name']} has neither an id nor a game")
    engine = portable(spec.backend)
    own = spec.task["name"] if field is None else spec.task[field]
    made: dict[str, Spec] = {}
    for env in envs or [own]:
        for seed in seeds or [spec.seed]:
            name = f"{_ODD.sub('-', str(env)).strip('-.')}-seed-{seed}"
            if name in made:
                raise InputError(f"{name}: is asked for twice")
            task = spec.task if field is None else {**spec.task, field: env}
            made[name] = msgspec.structs.replace(spec, seed=seed, task=task, backend=engine)
    return made


def files(
    spec: Spec,
    settings: Settings = DEFAULTS,
    *,
    seeds: Sequence[int] = (),
    envs: Sequence[str] = (),
) -> dict[str, str]:
    """The job script and the specs of all runs, by path below the folder of the job.

    Every spec is resolved first, so that a mistake is found before anything is written.
    """
    made = {}
    for name, variant in variants(spec, seeds, envs).items():
        try:
            resolved = specs.resolve(variant, trust=settings.trust)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        made[f"specs/{name}.toml"] = specs.to_toml(resolved.spec)
    names = [path.removeprefix("specs/").removesuffix(".toml") for path in made]
    return {JOB: _script(spec, settings, names), **made}


def _script(spec: Spec, settings: Settings, names: Sequence[str]) -> str:
    folder, scratch = settings.folder, settings.scratch
    processes = settings.processes or settings.cpus
    values = {
        "options": "\n".join(
            f"#SBATCH --{option}" for option in _options(spec, settings, len(names))
        ),
        "setup": "\n".join(settings.setup) or "# Nothing has to be set up.",
        "python": shlex.quote(settings.python),
        "folder": '"$SLURM_SUBMIT_DIR"' if folder is None else shlex.quote(folder),
        "scratch": '"${TMPDIR:-/tmp}"' if scratch is None else _in_script(scratch),
        "runs": "\n".join(f"    {shlex.quote(name)}" for name in names),
        "every": settings.every,
        "requeues": settings.requeues,
        "insecure": "yes" if settings.insecure else "",
        "trust": " --trust" if settings.trust else "",
        "cpus": "" if settings.cpus is None else f" --cpus-per-task={settings.cpus}",
        "processes": "" if processes is None else f" --processes {processes}",
    }
    return render.render(render.template("slurm/job.sh"), values)


def _options(spec: Spec, settings: Settings, count: int) -> Iterable[str]:
    """The options of sbatch, without their dashes."""
    limit = f"%{settings.at_once}" if settings.at_once else ""
    log = "task-%a.log" if settings.folder is None else f"{settings.folder}/task-%a.log"
    yield f"job-name={settings.job or f'germline-{spec.name}'}"
    yield f"array=0-{count - 1}{limit}"
    yield f"nodes={settings.nodes}"
    yield "ntasks-per-node=1"
    yield "exclusive" if settings.cpus is None else f"cpus-per-task={settings.cpus}"
    for name in ("time", "partition", "account"):
        if (value := getattr(settings, name)) is not None:
            yield f"{name}={value}"
    yield f"signal=B:USR1@{settings.margin}"
    yield from ("requeue", "open-mode=append")
    yield f'output="{log}"'
    yield from settings.options
