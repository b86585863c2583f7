"""`germline slurm`: a spec becomes a job of a Slurm cluster, or an array of them."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time as clock
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from germline.cli import options
from germline.cli.options import AsJson, Set, SpecName, Trust
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted
from germline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

PAUSE = 5.0  # seconds between looks at the queue
PATIENCE = 600.0  # seconds in which nobody may answer


def slurm(
    spec: SpecName,
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes work on each run.")] = 1,
    seeds: Annotated[
        str | None, typer.Option(metavar="1,2,3", help="A run for each of these seeds.")
    ] = None,
    envs: Annotated[
        str | None, typer.Option(metavar="A,B", help="And for each of these ids or games.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="H:M:S", help="The time limit; the partition's own if not given."),
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Where to queue.")] = None,
    account: Annotated[str | None, typer.Option(help="Who pays.")] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Whole nodes if not given.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Workers on a node; one per core if not given."),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="How many runs may work at a time.")
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another option of sbatch, such as qos=long."),
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(metavar="LINE", help='A line to begin with, such as "module load gcc".'),
    ] = None,
    margin: Annotated[
        int, typer.Option(min=1, max=65535, help="Seconds before the limit to stop at.")
    ] = 300,
    max_requeues: Annotated[
        int, typer.Option(min=0, help="How often a run may be queued again.")
    ] = 100,
    keep_every: Annotated[
        int, typer.Option(min=1, help="Seconds between copies to the shared folder.")
    ] = 300,
    scratch: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A folder of the node's own, such as '$SCRATCH'; TMPDIR or /tmp."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of all runs; runs/NAME if not given.")
    ] = None,
    set_: Set = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do without TLS between the nodes.")
    ] = False,
    trust: Trust = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the files, and submit nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Come back when all runs are over; 1 if one is not done.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Run on a Slurm cluster: node 0 is the master, every core works, time limits are outlived.

    One run, or one for each seed and environment, as an array. A run that comes near the time
    limit is stopped, queued again and gone on with. The same command again goes on with all.
    """
    if dry_run and wait:
        raise InputError("--dry-run and --wait: give one of them")
    if not dry_run and shutil.which("sbatch") is None:
        raise InputError(
            "sbatch is not here, so this is not a login node of a Slurm cluster; write the files "
            "with --dry-run, or with: germline deploy slurm"
        )
    options.prepare(trust)
    from germline import presets
    from germline.backends import registry
    from germline.deploy import slurm as deploy

    registry.load("grpc")  # how nodes talk; it may not be installed
    given = presets.read(spec, options.pairs(set_ or []))
    folder = out or Path("runs") / given.name
    place = folder.absolute()
    job = f"germline-{given.name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}"
    settings = deploy.Settings(
        nodes=nodes,
        cpus=cpus_per_node,
        processes=processes,
        time=time,
        partition=partition,
        account=account,
        options=tuple(sbatch or ()),
        setup=tuple(setup or ()),
        at_once=at_once,
        margin=margin,
        requeues=max_requeues,
        every=keep_every,
        scratch=scratch,
        folder=str(place),
        job=job,
        python=sys.executable,
        insecure=insecure,
        trust=trust,
    )
    files = deploy.files(given, settings, seeds=_seeds(seeds), envs=_words("--envs", envs))
    names = [Path(path).stem for path in files if path != deploy.JOB]
    new = _check(folder, files)
    if not new and not dry_run and (queued := _queued(job)):
        raise InputError(f"{folder}: is at work as job {queued}; wait for it, or use scancel")
    _write(folder, files, new=new)
    number = None if dry_run else _submit(folder / deploy.JOB, new=new)
    if not json:
        _tell(folder, names, nodes, number)
    ends = _wait(job, folder, names) if wait else None
    if json:
        say_json({"folder": str(folder), "job": number, "runs": _facts(folder, names, ends)})
    elif ends is not None:
        _tell_ends(folder, ends)
    if ends is not None and None in ends.values():
        raise typer.Exit(1)


def _seeds(text: str | None) -> list[int]:
    found = _words("--seeds", text)
    for word in found:
        if not (word.isascii() and word.isdecimal() and int(word) < 2**32):
            raise InputError(f"--seeds: {word!r} is not a whole number from 0 to {2**32 - 1}")
    return [int(word) for word in found]


def _words(option: str, text: str | None) -> list[str]:
    if text is None:
        return []
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise InputError(f"{option}: {text!r} has an empty place; give them with commas between")
    return found


def _check(folder: Path, files: "Mapping[str, str]") -> bool:
    """Whether the folder is new; one that has anything but these same runs is refused."""
    if not folder.exists():
        return True
    if (folder / "run.db").exists():
        raise InputError(f"{folder}: is a run of its own; choose another folder with --out")
    if not folder.is_dir() or (
        (there := any(folder.iterdir())) and not (folder / "specs").is_dir()
    ):
        raise InputError(f"{folder}: is there already; choose another folder with --out")
    for path, text in files.items():
        if path.startswith("specs/") and (folder / path).exists():
            _check_same(folder, folder / path, text)
    return not there


def _check_same(folder: Path, path: Path, wanted: str) -> None:
    """Refuse to make another run of one that is there: only its stop rules may change."""
    from germline.run import spec as specs
    from germline.run.difference import difference

    if other := difference(specs.read(path), specs.parse(tomllib.loads(wanted))):
        name = other.table or other.field
        raise InputError(
            f"{folder}: has {path.stem} with another {name}; choose another folder with --out"
        )


def _write(folder: Path, files: "Mapping[str, str]", *, new: bool) -> None:
    """Write all files; those of a new folder appear at once, or not at all."""
    from germline import disk

    place = folder.with_name(f".{folder.name}-{os.getpid()}") if new else folder
    try:
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            disk.write_atomically(place / path, text.encode())
        if new:
            place.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        if new:
            shutil.rmtree(place, ignore_errors=True)


def _submit(job: Path, *, new: bool) -> str:
    """Hand the script to Slurm; give the number of the job. If it is refused, nothing stays."""
    try:
        return _call("sbatch", "--parsable", str(job)).partition(";")[0]
    except InputError:
        if new:
            shutil.rmtree(job.parent, ignore_errors=True)
        raise


def _queued(job: str) -> str:
    """The number of a job that is queued or running, by its name; empty if there is none."""
    found = _call("squeue", "--noheader", "--format=%F", f"--name={job}").split()
    return found[0] if found else ""


def _call(*command: str) -> str:
    """What a command of Slurm prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror or error}") from None
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())
        raise InputError(f"{words or f'{command[0]} ended with code {done.returncode}'}")
    return done.stdout.strip()


def _tell(folder: Path, names: list[str], nodes: int, number: str | None) -> None:
    """What was made, and what can be done next."""
    each = " each" if len(names) > 1 else ""
    say(f"{folder}: {counted(len(names), 'run')} on {counted(nodes, 'node')}{each}")
    for task, name in enumerate(names):
        say(f"  {task}  {folder / name}")
    if number is None:
        say(f"Nothing is submitted. Do that with: sbatch {_quoted(folder / 'job.sh')}")
        return
    say(f"Submitted as job {number}. Look at the queue with: squeue --job {number}")
    runs, first = _quoted(folder), _quoted(folder / names[0])
    say(f"At what was reached with: germline runs {runs}; germline show {first}")
    say(f"At the log of a run with: tail -f {_quoted(_log(folder, 0))}")
    say(f"Stop with: scancel {number}. Go on later by the same command.")


def _wait(job: str, folder: Path, names: list[str]) -> dict[str, str | None]:
    """Wait until nothing is queued or running; give the rule that ended each run, if one did.

    Where Slurm does not answer, it may later.
    """
    heard = clock.monotonic()
    while True:
        try:
            if not _queued(job):
                break
            heard = clock.monotonic()
        except InputError:
            if clock.monotonic() - heard > PATIENCE:
                raise
        clock.sleep(PAUSE)
    return {name: _finished(folder / name) for name in names}


def _finished(run: Path) -> str | None:
    from germline.run import spec as specs
    from germline.run import stop
    from germline.run.store import Store

    if not (run / "run.db").exists():
        return None
    with Store.open(run) as store:
        reports, totals = store.reports(), store.totals()
    rules = specs.of_run(run).stop
    return stop.met(rules, reports[-1] if reports else None, totals)


def _quoted(path: Path) -> str:
    """A path in a command to copy."""
    return shlex.quote(str(path))


def _log(folder: Path, task: int) -> Path:
    return folder / f"task-{task}.log"


def _facts(
    folder: Path, names: list[str], ends: dict[str, str | None] | None
) -> list[dict[str, Any]]:
    facts = [
        {"run": str(folder / name), "log": str(_log(folder, task))}
        for task, name in enumerate(names)
    ]
    if ends is None:
        return facts
    return [{**fact, "finished_by": end} for fact, end in zip(facts, ends.values(), strict=True)]


def _tell_ends(folder: Path, ends: dict[str, str | None]) -> None:
    for task, (name, end) in enumerate(ends.items()):
        log = _log(folder, task)
        say(f"{folder / name}: " + (f"finished by {end}" if end else f"not finished; see {log}"))
