"""`germline slurm`: what it writes and refuses, what its script does, and a cluster with it."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib

import pytest

import servers
from commands import content, ok, refused
from engines import until
from germline.deploy import node, slurm
from germline.errors import InputError
from germline.run import spec as specs
from germline.run.store import Store
from runs import begin, digest, go_on, run, small, write

CARTS = {
    "name": "carts",
    "imports": [],
    "task": {"name": "functional", "id": "CartPole-v1"},
    "policy": {"name": "mlp", "hidden": [4]},
    "stop": {"generations": 150},
    "backend": {},
}
BOTH = ["--seeds", "1,2", "--envs", "CartPole-v1,Pendulum-v1"]
FOUR = [f"{env}-v1-seed-{seed}" for env in ("CartPole", "Pendulum") for seed in (1, 2)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a spec, where Slurm is not installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    write(tmp_path / "spec.toml", CARTS)
    write(tmp_path / "own.toml")
    write(tmp_path / "fixed.toml", CARTS | {"policy": {"name": "mlp", "inputs": 4}})
    return tmp_path


def test_a_run_for_each_seed_and_environment(here, germline):
    options = ["--nodes", 8, "--time", "05:00:00", "--partition", "long", "--account", "me"]
    more = ["--sbatch", "qos=high", "--setup", "module load python", "--at-once", 3]
    out = ok(germline("slurm", "spec.toml", *BOTH, *options, *more, "--dry-run"))
    assert out.splitlines()[0] == "runs/carts: 4 runs on 8 nodes each"
    assert [line.split() for line in out.splitlines()[1:5]] == [
        [str(task), f"runs/carts/{name}"] for task, name in enumerate(FOUR)
    ]
    assert out.endswith("Nothing is submitted. Do that with: sbatch runs/carts/job.sh\n")

    folder = here / "runs/carts"
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*.*")} == {
        "job.sh",
        *(f"specs/{name}.toml" for name in FOUR),
    }
    swing = specs.read(folder / "specs/Pendulum-v1-seed-2.toml")
    assert (swing.seed, swing.task["id"]) == (2, "Pendulum-v1")
    assert (swing.policy["inputs"], swing.policy["head"]) == (3, "continuous")
    script = (folder / "job.sh").read_text()
    asked = [line[8:] for line in script.splitlines() if line.startswith("#SBATCH --")]
    for option in (
        *("array=0-3%3", "nodes=8", "ntasks-per-node=1", "exclusive", "time=05:00:00"),
        *("partition=long", "account=me", "qos=high", "requeue", "signal=B:USR1@300"),
        *("open-mode=append", f'output="{folder}/task-%a.log"'),
    ):
        assert f"--{option}" in asked
    assert "\nmodule load python\n" in script
    assert "@{" not in script
    assert [p.name for p in here.iterdir() if p.name.startswith(".")] == []


def test_json_and_one_run(here, germline):
    out = ok(germline("slurm", "spec.toml", "--dry-run", "--json", "--out", "there"))
    assert json.loads(out) == {
        "folder": "there",
        "job": None,
        "runs": [{"run": "there/CartPole-v1-seed-7", "log": "there/task-0.log"}],
    }


def test_the_same_again_goes_on_and_another_is_refused(here, germline):
    def again(*options):
        return germline("slurm", "spec.toml", "--dry-run", *options)

    ok(again("--seeds", "1"))
    (here / "runs/carts/CartPole-v1-seed-1").mkdir()
    ok(again("--seeds", "1,2", "--set", "stop.generations=900", "--nodes", 4))
    folder = here / "runs/carts"
    for seed in (1, 2):
        found = tomllib.loads((folder / f"specs/CartPole-v1-seed-{seed}.toml").read_text())
        assert found["stop"] == {"generations": 900}
    assert "--nodes=4" in (folder / "job.sh").read_text()

    before = content(here)
    words = "runs/carts: has CartPole-v1-seed-1 with another algorithm; choose another folder"
    assert words in refused(again("--seeds", "1", "--set", "algorithm.sigma=0.3"))
    assert content(here) == before


MISTAKES = {
    "not a cluster": ("spec.toml", "sbatch is not here"),
    "no spec": ("none.toml --dry-run", "none.toml: No such file or directory"),
    "seed": ("spec.toml --dry-run --seeds 1,x", "--seeds: 'x' is not a whole number from 0"),
    "large seed": ("spec.toml --dry-run --seeds 4294967296", "--seeds: '4294967296' is not"),
    "no seed": ("spec.toml --dry-run --seeds 1,,2", "--seeds: '1,,2' has an empty place"),
    "seed twice": ("spec.toml --dry-run --seeds 1,1", "CartPole-v1-seed-1: is asked for twice"),
    "env": (
        "spec.toml --dry-run --envs CartPole-v1,Pendlum-v1",
        "Pendlum-v1-seed-7: task functional: id: 'Pendlum-v1' is not known; did you mean Pendulum",
    ),
    "no envs": (
        "own.toml --dry-run --envs A --trust",
        "envs: the task positive has neither an id nor a game",
    ),
    "untrusted": ("own.toml --dry-run", "imports: games is code; add --trust"),
    "unfit": (
        "fixed.toml --dry-run --envs Pendulum-v1",
        "Pendulum-v1-seed-7: policy mlp: sees [4], the task shows [3]",
    ),
    "time": ("spec.toml --dry-run --time soon", "time: 'soon' is not a time limit, such as 05:00"),
    "short time": ("spec.toml --dry-run --time 5", "time: 5 leaves nothing beside a margin of 300"),
    "partition": ("spec.toml --dry-run --partition 'a b'", "partition: 'a b' is not a name"),
    "option": ("spec.toml --dry-run --sbatch --qos", "sbatch: '--qos' is not name=value"),
    "our option": ("spec.toml --dry-run --sbatch array=9", "sbatch: array is what germline says"),
    "our time": ("spec.toml --dry-run --sbatch time=3", "sbatch: time is what germline says"),
    "abridged": ("spec.toml --dry-run --sbatch part=x", "sbatch: part is what germline says"),
    "scratch": (
        "spec.toml --dry-run --scratch local",
        "scratch: 'local' begins neither with / nor with a $VARIABLE",
    ),
    "odd scratch": ("spec.toml --dry-run --scratch '/a$(b)'", "scratch: '$' cannot be in the path"),
    "setup": ("spec.toml --dry-run --setup 'a\nb'", "setup: 'a\\nb' is not one line"),
    "folder": ("spec.toml --dry-run --out 50%", "'%' cannot be in the path of a job"),
    "taken": ("spec.toml --dry-run --out taken", "taken: is there already; choose another"),
    "a file": ("spec.toml --dry-run --out spec.toml", "spec.toml: is there already"),
    "both": ("spec.toml --dry-run --wait", "--dry-run and --wait: give one of them"),
    "no nodes": ("spec.toml --nodes 0", "see germline slurm --help"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_changes_nothing(case, here, germline):
    (here / "taken").mkdir()
    (here / "taken/thesis.txt").write_text("years of work")
    line, words = MISTAKES[case]
    before = content(here)
    assert words in refused(germline("slurm", *shlex.split(line)))
    assert content(here) == before


def executable(path, text):
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_slurm_refuses_is_told_and_leaves_nothing(here, germline, monkeypatch):
    (here / "bin").mkdir()
    executable(here / "bin/sbatch", "echo 'sbatch: error: no such partition' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{here}/bin", prepend=os.pathsep)
    before = content(here)
    assert refused(germline("slurm", "spec.toml")) == "sbatch: error: no such partition"
    assert {k: v for k, v in content(here).items() if k != here / "runs"} == before


def test_a_job_in_the_queue_is_not_submitted_twice(here, germline, monkeypatch):
    (here / "bin").mkdir()
    executable(here / "bin/sbatch", "echo '41;cluster'")
    executable(here / "bin/squeue", "echo 41")
    monkeypatch.setenv("PATH", f"{here}/bin", prepend=os.pathsep)
    assert "Submitted as job 41." in ok(germline("slurm", "spec.toml"))
    assert refused(germline("slurm", "spec.toml")).startswith("runs/carts: is at work as job 41;")
    executable(here / "bin/squeue", "")
    assert json.loads(ok(germline("slurm", "spec.toml", "--json")))["job"] == "41"


def test_commands_can_be_copied(here, germline):
    out = ok(germline("slurm", "spec.toml", "--dry-run", "--out", "a b"))
    assert out.endswith(" Do that with: sbatch 'a b/job.sh'\n")


@pytest.mark.parametrize("patience", [600, -1])
def test_waiting_bears_a_queue_that_does_not_answer(patience, here, germline, monkeypatch):
    (here / "bin").mkdir()
    executable(here / "bin/sbatch", "echo 41")
    executable(here / "bin/squeue", "[ -e asked ] || { >asked; echo 'timed out' >&2; exit 1; }")
    monkeypatch.setenv("PATH", f"{here}/bin", prepend=os.pathsep)
    monkeypatch.setattr("germline.cli.slurm.PAUSE", 0.0)
    monkeypatch.setattr("germline.cli.slurm.PATIENCE", patience)
    code, out, err = germline("slurm", "spec.toml", "--wait")
    if patience > 0:
        assert (code, err) == (1, "")
        assert out.endswith("CartPole-v1-seed-7: not finished; see runs/carts/task-0.log\n")
    else:
        assert (code, err) == (2, "germline: timed out\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 5400), ("1:30", 90), ("05:00:00", 18000), ("1-12", 129600), ("2-0:0:5", 172805)],
)
def test_time_limits_as_slurm_writes_them(text, expected):
    assert slurm.seconds(text) == expected


# In place of Slurm and of Python, so that what the script does is seen without either. The master
# does what $MASTER says once it is told to end, and ends by itself where that is `ends`.
STAND_INS = {
    "srun": 'while [ "$1" != nice ]; do shift; done; exec "$@"',
    "scontrol": """
[ "$1" = requeue ] || { echo "  NodeAddr=10.0.0.1 NodeHostName=here" && exit; }
echo "requeue $2" >>told
[ -z "${FORBIDDEN:-}" ]""",
    "sbatch": 'echo "sbatch $GERMLINE_RESTARTS $1" >>told',
    "scancel": "kill $(cat worker)",
    "python": """
echo "${*:3}" >>called
case "$3 $4" in
"germline.deploy.node port") echo 20000 ;;
"germline.deploy.node keep") [ $# -eq 6 ] || exec sleep 60 && [ -z "${FULL:-}" ] ;;
"germline worker")
    echo $$ >worker
    [ -z "${LEAVES:-}" ] || exit 2
    exec sleep 60 ;;
*)
    stat -c %a .CartPole-v1-seed-7 .CartPole-v1-seed-7/token >modes
    [ -z "${ENDS:-}" ] || exit "$ENDS"
    trap 'exit ${CODE:-143}' TERM
    echo $$ >master.new && mv master.new master
    while :; do sleep 0.01; done ;;
esac""",
}


class Job:
    """The script of a job with one run, without Slurm."""

    def __init__(self, folder, scratch="$HERE/${DOT}", **settings):
        self.folder = folder
        (folder / "bin").mkdir()
        for name, text in STAND_INS.items():
            executable(folder / "bin" / name, text)
        made = slurm.Settings(
            folder=str(folder), scratch=scratch, python=str(folder / "bin/python"), **settings
        )
        for path, text in slurm.files(small(CARTS), made).items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)

    def __call__(self, *signals, **environment):
        """Run it; send signals once the master is there, and give code, output, what was told."""
        known = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HERE": str(self.folder),
            "DOT": ".",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_JOB_NODELIST": "node0",
            "SLURM_JOB_ID": "8",
            "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": "0",
        }
        with subprocess.Popen(
            ["bash", "job.sh"],
            cwd=self.folder,
            env={**known, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as script:
            if signals:
                until((self.folder / "master").exists, "the master is there")
                until((self.folder / "worker").exists, "the worker is there")
            for number in signals:
                script.send_signal(number)
                if number == signal.SIGTERM:  # which Slurm sends to all
                    os.kill(int((self.folder / "master").read_text()), number)
            out = script.communicate(timeout=60)[0]
        told = self.folder / "told"
        (self.folder / "worker").unlink(missing_ok=True)
        assert ([p.name for p in self.folder.glob("germline-*")] != []) == ("FULL" in environment)
        assert not (self.folder / ".CartPole-v1-seed-7").exists()
        return script.returncode, out, told.read_text() if told.exists() else ""

    def called(self, *words):
        """What Python was called with where it was called for this, the last time."""
        lines = (self.folder / "called").read_text().splitlines()
        return [line for line in lines if line.startswith(" ".join(words))][-1:]


def test_a_job_queues_itself_again_at_the_limit(tmp_path):
    job = Job(tmp_path)
    code, out, told = job(signal.SIGUSR1)
    assert (code, told) == (0, "requeue 7_0\n"), out
    assert "is queued again, for its time is up" in out
    assert job.called()[0].startswith("germline.deploy.node keep")  # the last of all
    assert job.called("germline", "train")
    assert (tmp_path / "modes").read_text().split() == ["700", "600"]

    (tmp_path / "CartPole-v1-seed-7").mkdir()
    (tmp_path / "CartPole-v1-seed-7/run.db").touch()
    code, out, _ = job(ENDS="0", SLURM_RESTART_COUNT="1")
    assert code == 0
    assert "CartPole-v1-seed-7: session 2, on node0" in out
    assert job.called("germline", "resume")


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ({"ENDS": "0"}, 0, "finished"),
        ({"ENDS": "2"}, 2, "was refused; see above"),
        ({"ENDS": "1"}, 1, "ended with code 1; see above"),
        ({"LEAVES": "1"}, 1, "has no workers any more; see above"),
    ],
)
def test_a_job_that_ends_by_itself_is_not_queued_again(case, code, words, tmp_path):
    found, out, told = Job(tmp_path)(**case)
    assert (found, told) == (code, ""), out
    assert words in out


@pytest.mark.parametrize(
    ("signals", "case", "code", "words"),
    [
        ([signal.SIGUSR1], {"CODE": "0"}, 0, "finished"),
        ([signal.SIGUSR1], {"CODE": "2"}, 2, "was refused"),
        ([signal.SIGTERM], {}, 143, "was stopped by Slurm; nothing is lost"),
        ([signal.SIGUSR1], {"SLURM_RESTART_COUNT": "100"}, 1, "was queued again 100 times"),
    ],
)
def test_a_signal_does_not_always_queue_it_again(signals, case, code, words, tmp_path):
    found, out, told = Job(tmp_path)(*signals, **case)
    assert (found, told) == (code, ""), out
    assert words in out


def test_a_run_that_cannot_be_copied_stays_on_the_node(tmp_path):
    code, out, told = Job(tmp_path)(signal.SIGUSR1, FULL="1", SLURMD_NODENAME="node0")
    (scratch,) = tmp_path.glob("germline-*")
    assert (code, told) == (1, ""), out
    assert f"/{scratch.name}/CartPole-v1-seed-7 on node0: make room, copy it from there" in out


def test_a_variable_that_the_node_has_not_is_told(tmp_path):
    code, out, _ = Job(tmp_path, scratch="$NOT_HERE")()
    assert code == 2
    assert "NOT_HERE: is not set on this node" in out


def test_a_limit_that_comes_before_the_master_is_kept_to(tmp_path):
    job = Job(tmp_path, setup=("kill -USR1 $$",))
    code, out, told = job()
    assert (code, told) == (0, "requeue 7_0\n"), out
    assert not job.called("germline", "train")


def test_where_queueing_again_is_forbidden_it_submits_itself(tmp_path):
    code, out, told = Job(tmp_path)(signal.SIGUSR1, FORBIDDEN="1")
    assert (code, told) == (0, "requeue 7_0\nsbatch 1 --array=0\n"), out


@pytest.mark.parametrize(("insecure", "words"), [(False, "--certificate"), (True, "--insecure")])
def test_nodes_meet_where_slurm_says(insecure, words, tmp_path):
    job = Job(tmp_path, nodes=2, processes=3, insecure=insecure)
    assert job(signal.SIGUSR1, SLURM_JOB_NUM_NODES="2", SLURMD_NODENAME="node0")[0] == 0
    (master,), (worker,) = job.called("germline", "train"), job.called("germline", "worker")
    assert "--backend grpc://0.0.0.0:20000" in master
    assert words in master
    assert worker.startswith("germline worker grpc://10.0.0.1:20000 --token-file ")
    assert " --processes 3" in worker
    assert ("--authority" in worker, "--insecure" in worker) == (not insecure, insecure)


def test_without_a_certificate_nodes_do_not_meet(tmp_path):
    job = Job(tmp_path, nodes=2)
    executable(tmp_path / "bin/openssl", "echo 'no -addext' >&2; exit 1")
    code, out, told = job(SLURM_JOB_NUM_NODES="2", SLURMD_NODENAME="node0")
    assert (code, told) == (2, "")
    assert "openssl makes no certificate here (no -addext); add it, or use --insecure" in out


def test_the_script_is_sound(tmp_path):
    several = {"nodes": 3, "cpus": 4, "setup": ("module load x",), "trust": True}
    for settings in (slurm.Settings(), slurm.Settings(insecure=True, folder="/a b", **several)):
        script = tmp_path / "job.sh"
        script.write_text(slurm.files(small(CARTS), settings)["job.sh"])
        subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.system
def test_shellcheck_finds_nothing(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(slurm.files(small(CARTS))["job.sh"])
    done = subprocess.run(
        [servers.program("shellcheck"), script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_copy_is_a_whole_run_while_the_run_goes_on(tmp_path):
    begin(tmp_path / "run", small())
    copies = []

    def copied(report, totals):
        node.keep(tmp_path / "run", tmp_path / "copy")
        copies.append(digest(tmp_path / "copy"))

    go_on(tmp_path / "run", aside=copied)
    assert len(set(copies)) == 3
    assert {p.name for p in (tmp_path / "copy").iterdir()} == {"blobs", "run.db", "spec.toml"}
    with Store.open(tmp_path / "copy") as store:
        assert store.totals().generations == 3
    assert digest(tmp_path / "copy") == digest(tmp_path / "run")
    go_on(tmp_path / "copy", {"stop.generations": 5})
    assert digest(tmp_path / "copy") == run(tmp_path / "five", small({"stop.generations": 5}))


def test_what_a_script_calls_on_its_node(tmp_path, capfd):
    assert node.main(["port"]) == 0
    assert int(capfd.readouterr().out) in node.PORTS
    assert node.main(["keep", str(tmp_path / "none"), str(tmp_path / "copy")]) == 0
    assert not (tmp_path / "copy").exists()
    run(tmp_path / "run", small())
    (tmp_path / "file").touch()
    assert node.main(["keep", str(tmp_path / "run"), str(tmp_path / "file")]) == 1
    assert capfd.readouterr().err.startswith("germline: keep: ")


class Held:
    """The first run of a job, whose workers are frozen until Slurm has ended its first session."""

    def __init__(self, cluster, scratch, name):
        self.cluster, self.scratch, self.name = cluster, scratch, name

    def generations(self):
        for folder in self.scratch.glob(f"germline-*/{self.name}"):
            with contextlib.suppress(InputError), Store.open(folder) as store:
                return store.totals().generations
        return 0

    def freeze(self):
        until(
            lambda: self.generations() >= 2 and len(self.workers()) == 2,
            "two generations are done, and both nodes have joined",
            seconds=110,  # before its time is up
        )
        found = self.workers()
        for number in found:
            os.kill(number, signal.SIGSTOP)
        return found

    def workers(self):
        wanted = {b"SLURM_ARRAY_TASK_ID=0", b"GERMLINE_WORKER=1"}
        return [n for n, about in self.cluster.processes().items() if wanted <= set(about)]


@pytest.mark.slow
@pytest.mark.system
def test_four_runs_on_two_nodes_outlive_a_time_limit(tmp_path):
    write(tmp_path / "spec.toml", CARTS)
    scratch, runs = tmp_path / "scratch", tmp_path / "runs/carts"
    scratch.mkdir()
    limits = ["--time", "2", "--margin", "5", "--at-once", "2", "--scratch", scratch]
    words = ["slurm", "spec.toml", *BOTH, "--nodes", 2, "--cpus-per-node", 1, *limits, "--wait"]
    with servers.slurm() as cluster:
        with subprocess.Popen(
            [sys.executable, "-m", "germline", *map(str, words)],
            cwd=tmp_path,
            env=cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            assert len(Held(cluster, scratch, FOUR[0]).freeze()) == 2
            out, err = command.communicate()
        logs = [(runs / f"task-{task}.log").read_text() for task in range(4)]
        assert (command.returncode, err) == (0, ""), logs
        assert cluster("squeue", "--noheader") == ""
    assert cluster.processes() == {}
    assert out.splitlines()[-4:] == [
        f"runs/carts/{name}: finished by generations 150 of 150" for name in FOUR
    ]
    assert "is queued again, for its time is up" in logs[0]
    assert "CartPole-v1-seed-1: session 2, on node[0-1]" in logs[0]
    assert "CartPole-v1-seed-1: finished" in logs[0]
    with Store.open(runs / FOUR[0]) as store:
        assert len(store.sessions()) == 2
    serial = specs.read(runs / "specs/CartPole-v1-seed-1.toml", {"backend.name": "serial"})
    assert digest(runs / FOUR[0]) == run(tmp_path / "serial", serial)
    assert specs.read(runs / FOUR[0] / "spec.toml").backend.name == "processes"
    # Neither secrets nor what was on the nodes stays.
    assert [p for p in runs.iterdir() if p.name.startswith(".")] == list(scratch.iterdir()) == []
