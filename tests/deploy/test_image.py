"""The image, built step by step as its Dockerfile says, in a root of Debian instead of a container.

The base of the image has Python on Debian; debootstrap makes the same from Debian's own packages.
Then a master and a worker run in it, as the user of the image, on a network of their own.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import germline
import servers
from germline import presets
from germline.deploy import docker, plan, write

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache"
TLS = ROOT / "tests" / "golden" / "tls"
SMALL = {
    "algorithm.population": 8,
    "algorithm.parents": 4,
    "algorithm.candidate_episodes": 2,
    "stop.generations": 2,
}
# What leads to packages on this machine leads there in the image, too.
WAYS = re.compile(r"(PIP_\w+|(HTTPS?|NO|ALL)_PROXY|SSL_CERT_\w+|\w+_CA_BUNDLE)\Z", re.IGNORECASE)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def mirror(suite):
    """Where this machine takes Debian's packages of a release from."""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    for text in (path.read_text() for path in files if path.is_file()):
        for part in text.split("\n\n"):
            fields = dict(re.findall(r"^(\w[\w-]*):\s*(.*)$", part, re.MULTILINE))
            if suite in fields.get("Suites", "").split():
                return fields["URIs"].split()[0]
        for line in text.splitlines():
            if found := re.match(rf"deb\s+(?:\[.*\]\s+)?(\S+)\s+{suite}\s", line):
                return found[1]
    reason = f"apt of this machine knows no Debian {suite}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Image:
    """A folder that the instructions of a Dockerfile are carried out in."""

    def __init__(self, root, context):
        self.root, self.context = root, context
        self.sent = (context / ".dockerignore").read_text().splitlines()
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user, self.folder, self.entry = "0:0", "/", []
        self.ways, self.shared = {}, []

    def build(self):
        text = (self.context / "Dockerfile").read_text()
        text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
        for line in filter(None, map(str.strip, text.splitlines())):
            word, _, rest = line.partition(" ")
            match word:
                case "FROM":
                    self.begin(rest.rpartition("-")[2])
                case "ENV":
                    self.set(rest)
                case "RUN":
                    self.call(["/bin/sh", "-c", rest], self.ways)
                case "COPY":
                    self.copy(*rest.split())
                case "USER":
                    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", rest), "a number, and not root's"
                    self.user = rest
                case "WORKDIR":
                    self.folder = rest
                case "ENTRYPOINT":
                    self.entry = json.loads(rest)
                case _:
                    pytest.fail(f"{word}: this test does not know how to do that")

    def begin(self, suite):
        """Debian and its Python; pip in there is to find packages as pip does here."""
        kept = CACHE / f"debian-{suite}.tar"
        if not kept.exists():
            bootstrap = servers.program("debootstrap")
            wanted = "--include=ca-certificates,python3,python3-venv"
            run(bootstrap, "--variant=minbase", wanted, suite, self.root, mirror(suite))
            CACHE.mkdir(exist_ok=True)
            draft = kept.with_suffix(f".{os.getpid()}")
            run("tar", "--create", f"--file={draft}", f"--directory={self.root}", ".")
            draft.rename(kept)
        else:
            run("tar", "--extract", f"--file={kept}", f"--directory={self.root}")
        self.ways = {name: value for name, value in os.environ.items() if WAYS.match(name)}
        lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
        given = [line.partition("=") for line in lines if line.startswith("global.")]
        settings = {name.removeprefix("global."): shlex.split(value)[0] for name, _, value in given}
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.root / "etc/pip.conf").write_text(f"[global]\n{text}")
        words = " ".join([*settings.values(), *self.ways.values()]).split()
        places = {Path(word.removeprefix("file://")) for word in words}
        places = {place for place in places if place.is_absolute()}
        # An index of files lies beside the files it leads to.
        folders = {p.parent if p.name == "simple" else p for p in places if p.is_dir()}
        self.shared = sorted(folders)
        for path in [*(p for p in places if p.is_file()), Path("/etc/hosts")]:
            self.inside(path).parent.mkdir(parents=True, exist_ok=True)
            self.inside(path).write_bytes(path.read_bytes())

    def inside(self, path):
        return self.root / str(path).lstrip("/")

    def set(self, rest):
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            for known, replaced in self.variables.items():
                value = value.replace(f"${known}", replaced)
            self.variables[name] = value

    def copy(self, *names):
        *sources, target = names
        for name in sources:
            assert f"!{name}" in self.sent, f"{name} is not sent to the builder"
            place = self.inside(target) / (name if target.endswith("/") else "")
            run("cp", "--recursive", "--no-target-directory", self.context / name, place)

    def call(self, command, variables=None, *, pod=False):
        """Run a command in there; in a `pod` without a network, and most of it read-only."""
        root = self.root
        steps = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc"]
        steps += [f"mount -t tmpfs tmpfs {root}/dev/shm"]
        for path in self.shared:
            steps += [f"mkdir -p {self.inside(path)}", f"mount --bind {path} {self.inside(path)}"]
        if pod:
            steps += [f"mount -t tmpfs tmpfs {root}/tmp", f"mount --bind {root}/runs {root}/runs"]
            steps += [f"mount -o remount,bind,ro {root}", f"{servers.program('ip')} link set lo up"]
        inside = f"""/bin/sh -c 'cd {self.folder}; exec "$@"' sh "$@\""""
        steps += [f"exec chroot --userspec={self.user} {root} {inside}"]
        return run(
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *(["--net"] if pod else []),
            *("/bin/sh", "-ec", "; ".join(steps), "sh", *command),
            env={**self.variables, **(variables or {})},
        )

    def start(self, *arguments):
        return self.call([*self.entry, *arguments])


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image of a small run."""
    if os.geteuid() != 0 and os.environ.get("CI") != "true":
        pytest.skip("only root makes a root; on CI it is root")
    context = tmp_path_factory.mktemp("context")
    spec = presets.read("cartpole", SMALL)
    planned = plan.make(spec, workers=1, image=None, engine="grpc")
    write.write(context, docker.files(planned))
    wheel = ["wheel", "--quiet", "--no-deps", "--wheel-dir", context / "wheels", ROOT]
    run(sys.executable, "-m", "pip", *wheel)
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        made = Image(Path(root), context)
        made.build()
        secrets = made.inside(plan.SECRETS)
        secrets.mkdir(parents=True)
        (secrets / "token").write_text("a long secret")
        for name in ("certificate.pem", "key.pem"):
            (secrets / name).write_bytes((TLS / name).read_bytes())
        run("chown", "--recursive", made.user, secrets)
        yield made


pytestmark = [pytest.mark.release, pytest.mark.system]


def test_the_image_has_germline_and_its_user_is_not_root(image):
    assert image.start("--version") == f"germline {germline.__version__}\n"
    assert "--drain" in image.start("worker", "--help")
    assert image.call(["id", "-u"]) == f"{plan.USER}\n"
    assert "tensorboard" in image.call(
        ["sh", "-c", "tensorboard --version_tb && which tensorboard"]
    )


def test_nothing_in_the_image_is_its_users_but_the_runs(image):
    found = run("find", image.root, "-xdev", "-uid", str(plan.USER)).splitlines()
    found = [f"/{Path(path).relative_to(image.root)}" for path in found]
    assert "/runs" in found
    assert [p for p in found if not p.startswith(("/runs", "/tmp", plan.SECRETS))] == []


def test_the_versions_are_those_that_were_tested(image):
    pinned = set((ROOT / "constraints.txt").read_text().lower().splitlines())
    installed = image.call(["/opt/germline/bin/python", "-m", "pip", "list", "--format=freeze"])
    own = "germline==", "pip==", "setuptools=="
    found = {line for line in installed.lower().splitlines() if not line.startswith(own)}
    assert {line.replace("_", "-") for line in found} <= {pin.replace("_", "-") for pin in pinned}


def test_it_trains_alone(image):
    words = ["--backend", "serial", "--out", "/runs/alone", "--plain"]
    assert "finished by generations" in image.start("train", f"{plan.HOME}/spec.toml", *words)


def test_its_master_and_worker_find_each_other_and_a_second_master_goes_on(image):
    worker = (
        f"sh {plan.HOME}/worker.sh grpc://127.0.0.1:{plan.PORT} --authority "
        f"{plan.SECRETS}/certificate.pem"
    )
    script = f"{worker} & sh {plan.HOME}/master.sh; code=$?; kill $!; wait $!; exit $code"
    first = image.call(["sh", "-c", script], pod=True)
    assert "finished by generations" in first
    again = image.call(["sh", f"{plan.HOME}/master.sh"], pod=True)
    assert "2 generations done" in again
    assert image.call(["ls", "/runs/cartpole/tensorboard"])
