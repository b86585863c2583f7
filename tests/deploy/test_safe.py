"""What holds everywhere: secrets are secret, nobody is root, only workers reach the master."""

import os
import re
import shutil
import ssl
import stat
import subprocess

import pytest
import yaml

from germline import address
from germline.deploy import plan

KUBERNETES = ["kubernetes", "kubernetes-rabbitmq", "kuberay"]


def documents(path):
    return [part for part in yaml.safe_load_all(path.read_text()) if part]


def manifests(folder):
    return [part for path in sorted(folder.glob("*.yaml")) for part in documents(path)]


def named(folder, kind):
    return {d["metadata"]["name"]: d for d in manifests(folder) if d["kind"] == kind}


def pods(value):
    """Every pod in a manifest, however deep."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


def texts(folder):
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_no_file_has_a_secret_or_a_default_for_one(deployments):
    for path, text in texts(deployments).items():
        assert "guest" not in text, path
        assert "BEGIN " not in text.replace("BEGIN CERTIFICATE'", ""), path
        assert not re.search(r"://[^\s:/@]+:(?![%$])[^\s@/]+@", text), path
        for given in re.findall(r"(?i)(?:passw(?:or)?d|default_pass)\s*[:=]\s*(\S+)", text):
            assert given[0] in "$%", f"{path}: {given}"


def test_no_manifest_brings_a_secret_with_it(deployments):
    for target in KUBERNETES:
        assert named(deployments / target, "Secret") == {}
    (services,) = documents(deployments / "compose" / "compose.yaml")
    assert {tuple(secret) for secret in services["secrets"].values()} == {("environment",)}


@pytest.mark.parametrize("target", KUBERNETES)
def test_no_pod_is_root_or_could_become_it(deployments, target):
    found = [pod for part in manifests(deployments / target) for pod in pods(part)]
    assert len(found) >= 2
    for pod in found:
        whole = pod["securityContext"]
        assert whole["runAsNonRoot"] is True
        assert whole["runAsUser"] > 0
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert ":" in container["image"]
            assert not container["image"].endswith(":latest")
    (space,) = named(deployments / target, "Namespace").values()
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_no_service_of_compose_is_root_or_open_to_others(deployments):
    (made,) = documents(deployments / "compose" / "compose.yaml")
    for service in made["services"].values():
        assert int(service["user"].partition(":")[0]) > 0
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert made["networks"]["work"]["internal"] is True
    there = {name for name, one in made["services"].items() if "work" in one["networks"]}
    assert there == {"master", "worker", "broker"}
    assert made["services"]["worker"]["deploy"]["replicas"] == 8


def test_images_end_as_a_user_by_number(deployments):
    for path, text in texts(deployments).items():
        if path.name == "Dockerfile":
            users = re.findall(r"^USER (.*)$", text, re.MULTILINE)
            assert users == [f"{plan.USER}:{plan.USER}"]
            assert re.search(r"^FROM python:\d+\.\d+\.\d+-slim-\w+$", text, re.MULTILINE)
            assert 'ENTRYPOINT ["germline"]' in text
            assert ".env" not in (path.parent / ".dockerignore").read_text()


def selected(policy):
    return policy["spec"]["podSelector"].get("matchLabels", {}).get("app")


def callers(folder, app):
    """Who may call the pods of an app, and at which ports."""
    found = {}
    for policy in named(folder, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", []) if selected(policy) == app else []:
            ports = tuple(port["port"] for port in rule["ports"])
            for peer in rule["from"]:
                chosen = peer["podSelector"]
                labels = list(chosen.get("matchLabels", {}).values())
                labels += [v for e in chosen.get("matchExpressions", []) for v in e["values"]]
                found |= dict.fromkeys(labels, ports)
    return found


@pytest.mark.parametrize("target", KUBERNETES)
def test_who_is_not_named_may_speak_to_nobody(deployments, target):
    nobody = named(deployments / target, "NetworkPolicy")["nobody"]["spec"]
    assert nobody == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_only_workers_reach_the_master(deployments):
    assert callers(deployments / "kubernetes", "master") == {"worker": (plan.PORT,)}
    assert callers(deployments / "kubernetes-rabbitmq", "master") == {}
    broker = callers(deployments / "kubernetes-rabbitmq", "broker")
    assert broker == {"master": (5671,), "worker": (5671,)}
    ray = callers(deployments / "kuberay", "master")
    assert ray == {"submitter": (8265,), "kuberay-operator": (8265,)}
    inner = named(deployments / "kuberay", "NetworkPolicy")["cluster"]["spec"]
    own = [{"key": "app", "operator": "In", "values": ["master", "worker"]}]
    assert inner["podSelector"] == {"matchExpressions": own}
    assert inner["ingress"] == [{"from": [{"podSelector": {"matchExpressions": own}}]}]
    for target in KUBERNETES:
        for service in named(deployments / target, "Service").values():
            assert "type" not in service["spec"]  # within the cluster


def test_tensorboard_is_seen_by_port_forward_alone(deployments):
    job = named(deployments / "kubernetes", "Job")["master"]
    (board,) = job["spec"]["template"]["spec"]["initContainers"]
    assert board["restartPolicy"] == "Always"
    assert board["command"][board["command"].index("--host") + 1] == "127.0.0.1"


def test_the_key_is_the_masters_alone(deployments):
    for target in ("kubernetes", "kubernetes-rabbitmq"):
        (worker,) = pods(named(deployments / target, "Deployment")["worker"])
        secrets = [v["secret"]["secretName"] for v in worker["volumes"] if "secret" in v]
        assert secrets == ["worker"]
        script = (deployments / target / "start.sh").read_text()
        made = re.findall(r"create secret generic (\S+)((?:.*\\\n)*.*)", script)
        assert all("key.pem" not in files for who, files in made if who in ("worker", "$who"))


def test_workers_have_time_to_go(deployments):
    for target in ("kubernetes", "kubernetes-rabbitmq"):
        (worker,) = pods(named(deployments / target, "Deployment")["worker"])
        assert worker["terminationGracePeriodSeconds"] > plan.DRAIN
        scaled = named(deployments / target, "HorizontalPodAutoscaler")["worker"]["spec"]
        assert (scaled["minReplicas"], scaled["maxReplicas"]) == (1, 8)
        assert scaled["metrics"][0]["resource"]["name"] == "cpu"
    (made,) = documents(deployments / "compose" / "compose.yaml")
    assert int(made["services"]["worker"]["stop_grace_period"].rstrip("s")) > plan.DRAIN


@pytest.fixture
def stack(deployments):
    return documents(deployments / "aws" / "template.yaml")[0]


def test_only_workers_reach_the_master_on_aws(stack):
    made = stack["Resources"]
    groups = [one for one in made.values() if one["Type"] == "AWS::EC2::SecurityGroup"]
    assert len(groups) == 2
    assert made["WorkerGroup"]["Properties"]["SecurityGroupIngress"] == []
    (way,) = made["MasterGroup"]["Properties"]["SecurityGroupIngress"]
    assert way["SourceSecurityGroupId"] == {"Fn::GetAtt": ["WorkerGroup", "GroupId"]}
    assert (way["FromPort"], way["ToPort"]) == (plan.PORT, plan.PORT)
    assert not {"CidrIp", "CidrIpv6", "SourcePrefixListId"} & way.keys()
    assert not [one for one in made.values() if "Ingress" in one["Type"]]


def test_the_stack_may_do_little_and_keeps_the_run(stack):
    made = stack["Resources"]
    for role in ("MasterRole", "WorkerRole"):
        (policy,) = made[role]["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            for action in [actions] if isinstance(actions, str) else actions:
                assert "*" not in action
                # AWS has no narrower resource for it.
                if action != "ecr:GetAuthorizationToken":
                    assert statement["Resource"] != "*"
    worker = str(made["WorkerRole"])
    assert "PutSecretValue" not in worker
    assert "GenerateSecretString" in made["Token"]["Properties"]
    assert made["Disk"]["DeletionPolicy"] == "Snapshot"
    assert made["Disk"]["Properties"]["Encrypted"] is True
    for one in (made["Master"]["Properties"], made["Launch"]["Properties"]["LaunchTemplateData"]):
        assert one["MetadataOptions"]["HttpTokens"] == "required"


def test_the_stack_asks_what_the_founding_documents_ask(stack):
    asked = stack["Parameters"]
    assert {"Zone", "Vpc", "Environment", "Workers", "WorkerPrice"} <= asked.keys()
    assert asked["Workers"]["Default"] == 180
    assert asked["Environment"]["Default"] == "frostbite"
    spread = stack["Resources"]["Fleet"]["Properties"]["MixedInstancesPolicy"]
    assert spread["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0
    assert spread["InstancesDistribution"]["SpotMaxPrice"] == {"Ref": "WorkerPrice"}


@pytest.fixture
def start(deployments, tmp_path, monkeypatch):
    """Start a deployment where docker does nothing and kubectl keeps the secrets it is given."""
    programs = {
        "docker": "exit 0",
        "kubectl": """
            case "$*" in
              *"get secret"*)
                [ ! -e "$KEPT/broken" ] || exit 1
                for name in master worker broker; do
                  case "$*" in *" $name "*) [ ! -d "$KEPT/$name" ] || echo "secret/$name";; esac
                done;;
              *"delete secret"*) rm -rf "$KEPT/master" "$KEPT/worker" "$KEPT/broker";;
              *"apply --kustomize"*) rm -rf "$APPLIED" && cp -R "$3" "$APPLIED";;
            esac
            case "$*" in *"create secret generic"*) ;; *) exit 0;; esac
            name=$6
            mkdir -p "$KEPT/$name"
            for word; do case $word in --from-file=*)
              pair=${word#--from-file=}; cp "${pair#*=}" "$KEPT/$name/${pair%%=*}";;
            esac; done""",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KEPT", str(tmp_path / "kept"))
    monkeypatch.setenv("APPLIED", str(tmp_path / "applied"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def call(target, code=0):
        folder = tmp_path / "started" / target
        if not folder.exists():
            shutil.copytree(deployments / target, folder)
            image = folder / "image" / "build.sh"
            image.write_text("exit 0\n")
        command = ["sh", folder / "start.sh"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert list((tmp_path / "tmp").iterdir()) == []
        return folder, done.stdout

    return call


def test_the_secrets_of_compose_are_new_and_its_owners_alone(start):
    folder, said = start("compose")
    text = (folder / ".env").read_text()
    assert stat.S_IMODE((folder / ".env").stat().st_mode) == 0o600
    found = dict(line.split("=", 1) for line in text.splitlines())
    password = re.fullmatch(r"amqp://germline:(.{64})@broker:5672//", found["GERMLINE_ADDRESS"])[1]
    assert found["GERMLINE_BROKER"] == f'"default_user = germline\\ndefault_pass = {password}"'
    assert len(found["GERMLINE_TOKEN"]) == 64
    assert password not in said
    start("compose")
    assert (folder / ".env").read_text() == text
    (folder / ".env").unlink()
    start("compose")
    assert password not in (folder / ".env").read_text()


def kept(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_the_secrets_of_kubernetes_fit_one_another(start, tmp_path):
    start("kubernetes")
    found = kept(tmp_path / "kept")
    assert found.keys() == {
        *("master/token", "master/certificate.pem", "master/key.pem"),
        *("worker/token", "worker/authority.pem"),
    }
    assert found["master/token"] == found["worker/token"]
    assert found["worker/authority.pem"] == found["master/certificate.pem"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    place = tmp_path / "kept" / "master"
    context.load_cert_chain(place / "certificate.pem", place / "key.pem")
    start("kubernetes")
    assert kept(tmp_path / "kept") == found
    (tmp_path / "kept" / "broken").touch()
    start("kubernetes", code=1)
    (tmp_path / "kept" / "broken").unlink()
    assert kept(tmp_path / "kept") == found


@pytest.mark.parametrize("missing", ["master", "worker", "broker"])
def test_secrets_are_made_anew_together(start, tmp_path, missing):
    start("kubernetes-rabbitmq")
    before = kept(tmp_path / "kept")
    shutil.rmtree(tmp_path / "kept" / missing)
    start("kubernetes-rabbitmq")
    after = kept(tmp_path / "kept")
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize("target", KUBERNETES)
def test_every_build_has_a_tag_of_its_own(start, tmp_path, target):
    folder, _ = start(target)
    images = {
        made["image"]
        for part in manifests(tmp_path / "applied")
        for pod in pods(part)
        for made in [*pod["containers"], *pod.get("initContainers", [])]
    } - {"rabbitmq:3.13.7-management"}
    (image,) = images
    assert re.fullmatch(r"germline-frostbite-laptop:[0-9.]+-\d{14}", image)
    written = {path.name for path in folder.glob("*.yaml")}
    assert {path.name for path in (tmp_path / "applied").glob("*.yaml")} == written


def test_the_secrets_of_a_broker_fit_one_another(start, tmp_path):
    start("kubernetes-rabbitmq")
    found = kept(tmp_path / "kept")
    assert {name for name in found if "key.pem" in name} == {"broker/key.pem"}
    place = address.parse(found["worker/address"])
    assert (place.scheme, place.host, place.port, place.user) == (
        "amqps",
        "broker",
        5671,
        "germline",
    )
    assert place.query == f"ssl_ca_certs={plan.SECRETS}/authority.pem"
    assert found["master/address"] == found["worker/address"]
    settings = dict(line.split(" = ") for line in found["broker/broker.conf"].splitlines())
    assert settings["default_pass"] == place.password
    assert settings["listeners.tcp"] == "none"
    assert settings["listeners.ssl.default"] == "5671"
