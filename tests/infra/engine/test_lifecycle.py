"""The life of every environment in the real Pulumi engine: as the deployment guide has it, and drift, upgrade, teardown."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from infra.kube.connection import connect_with
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from infra.spec.names import cluster_name
from tests.deployment_guide import BARE, BRING_UP, DESTROY, PREPARE, UNPROTECT, UPDATE, Step
from tests.engines.eks_api import add_existing_cluster
from tests.engines.pulumi_cluster import REPLACED
from tests.engines.pulumi_engine import Engine, engine
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.eks import Eks
from tests.infra.lifecycle.existing.network import make_network
from tests.infra.lifecycle.existing.test_cluster import RANGES, Existing, prepare

pytestmark = pytest.mark.timeout(2700)

Start = Callable[[str], Engine]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes an environment in an empty account; skips without the engine."""
    with ExitStack() as stack:
        yield lambda environment: stack.enter_context(engine(tmp_path, settings_of(environment), monkeypatch))


def test_the_guide_leads_from_an_empty_account_to_an_environment_and_back(start: Start) -> None:
    stack = start("dev")
    _walk(stack, (*PREPARE, *BRING_UP))
    created = [urn.rpartition("::")[2] for call, urn in stack.provider.calls if call == "create"]
    assert created.index("trainer") < created.index("vpc")
    _expect_no_changes(stack, "dev")
    _walk(stack, UPDATE)
    _change(stack, "dev")
    _walk(stack, DESTROY)
    left = stack.pulumi("stack", "--stack", "dev", "--show-urns").stdout
    assert cluster_name(settings_of("dev")) not in left


def test_a_protected_environment_is_destroyed_only_without_its_protection(start: Start) -> None:
    stack = start("staging")
    stack.pulumi("stack", "init", "staging")
    up = stack.lifecycle("up", "--env", "staging", "--yes")
    assert up.returncode == 0, up.stdout
    _expect_no_changes(stack, "staging")
    _change(stack, "staging")
    refused = stack.lifecycle("destroy", "--env", "staging", "--yes")
    assert refused.returncode == 3, refused.stdout
    assert all(step.command in refused.stdout for step in UNPROTECT)
    _walk(stack, UNPROTECT)
    ended = stack.lifecycle("destroy", "--env", "staging", "--yes")
    assert ended.returncode == 0, ended.stdout


def test_bare_pulumi_brings_up_an_empty_account_in_two_runs(start: Start) -> None:
    stack = start("prod")
    stack.pulumi("stack", "init", "prod")
    _walk(stack, BARE)
    _expect_no_changes(stack, "prod")
    kept = stack.lifecycle("destroy", "--env", "prod", "--yes")
    assert kept.returncode == 3, kept.stdout
    assert "protected" in kept.stdout


def _walk(stack: Engine, steps: Iterable[Step]) -> None:
    """Run commands of the guide as they are written there."""
    for step in steps:
        ran = stack.shell(f"{step.command} {step.confirmation}")
        assert ran.returncode == step.status, f"{step.command}\n{ran.stdout}"
        assert step.says in ran.stdout, f"{step.command}\n{ran.stdout}"


def _expect_no_changes(stack: Engine, environment: str) -> None:
    preview = stack.pulumi("preview", "--stack", environment, "--expect-no-changes")
    assert preview.returncode == 0, preview.stdout


def _change(stack: Engine, environment: str) -> None:
    """A changed setting updates what it concerns, and replaces nothing."""
    before = len(stack.provider.calls)
    stack.checkout.edit(environment, {("environment", "owner"): "other@example.com"})
    changed = stack.lifecycle("up", "--env", environment, "--yes")
    assert changed.returncode == 0, changed.stdout
    assert {call for call, _ in stack.provider.calls[before:]} == {"update"}


NAME = "existing-cluster"
THEIRS: tuple[Manifest, ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "theirs"}},
)


def test_a_stack_comes_and_goes_on_a_cluster_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eks = Eks()
    add_existing_cluster(eks, monkeypatch)
    with engine(tmp_path, settings_of(NAME), monkeypatch) as stack:
        _state_in_settings(stack, _make_cluster(stack, eks))
        api = connect_with(next(tmp_path.rglob("kubeconfig*")))
        for manifest in THEIRS:
            api.create(manifest)
        stack.pulumi("stack", "init", NAME)
        _succeed(stack, "up", "--env", NAME, "--yes")
        made = {urn.split("::")[2].rpartition("$")[2] for call, urn in stack.provider.calls if call == "create"}
        assert made & {"aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"} == set()
        assert {"aws:eks/nodeGroup:NodeGroup", "aws:ec2/securityGroup:SecurityGroup"} <= made
        _expect_no_changes(stack, NAME)
        found = stack.lifecycle("drift", "--env", NAME, "--json")
        named = [one["resource"].split() for one in json.loads(found.stdout)["differences"]]
        drift = {f"{kind} {name.rpartition('/')[2]}" for kind, name in named}
        assert drift <= {f"{one['kind']} {one['metadata']['name']}" for one in REPLACED}
        _succeed(stack, "down", "--env", NAME, "--yes")
        assert stack.provider.ids == {}
        assert all(api.read(manifest) is not None for manifest in THEIRS)
        names = {one["metadata"]["name"] for one in api.items("v1", "Namespace")}
        assert names == {"default", "kube-node-lease", "kube-public", "kube-system", "theirs"}


def _make_cluster(stack: Engine, eks: Eks) -> Existing:
    """The VPC and the cluster, whose API server is the real one."""
    network = make_network(stack.session)
    for cidr in RANGES:
        network.make_subnet(cidr)
    prepare(eks, network)
    eks.nodegroups = stack.provider.node_groups
    eks.clusters["shared"].update(endpoint=stack.place.server, certificateAuthority={"data": stack.place.authority})
    return Existing(network, eks)


def _state_in_settings(stack: Engine, existing: Existing) -> None:
    account = settings_of(NAME).aws.allowed_accounts[0]
    sections = existing.sections({"aws.allowed_accounts": [account], "mlflow": {"backup": "suspended"}})
    file = stack.checkout.root / "infra" / "environments" / f"{NAME}.yaml"
    file.write_text(yaml.safe_dump(sections), encoding="utf-8")


_SECONDS = 300.0

QUEUE = {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": "research"}}


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Development, up, without backups of MLflow, which no pod here would take; skips without the engine."""
    dev = settings_of("dev")
    with engine(tmp_path, dev, monkeypatch) as made:
        settings = made.checkout.root / "infra/environments/dev.yaml"
        settings.write_text(f"{settings.read_text()}\nmlflow: {{ backup: suspended }}\n", encoding="utf-8")
        made.pulumi("stack", "init", "dev")
        _succeed(made, "up", "--env", "dev", "--yes")
        yield made


def test_planted_drift_is_found_and_taken_back_and_a_silent_cluster_is_given_up(stack: Engine, tmp_path: Path) -> None:
    none = stack.lifecycle("drift", "--env", "dev", "--json")
    assert (none.returncode, json.loads(none.stdout)["differences"]) == (0, []), none.stdout
    ends = "s3/bucket:Bucket::checkpoints", "cloudwatch/logGroup:LogGroup::cluster"
    [bucket], [group] = ([urn for urn in stack.provider.ids if urn.endswith(end)] for end in ends)
    rule = next(urn for urn in stack.provider.ids if ":SecurityGroupIngressRule::" in urn)
    stack.provider.outside = {bucket: {"tags": {"owner": "somebody"}}, group: None, rule: None}
    api = connect_with(next(tmp_path.rglob("kubeconfig*")))
    api.patch(QUEUE, {"spec": {"queueingStrategy": "StrictFIFO"}})
    policy = next(one for one in api.items("networking.k8s.io/v1", "NetworkPolicy", namespace="research"))
    api.delete(policy)
    deployment = next(iter(api.items("apps/v1", "Deployment", labels="app.kubernetes.io/managed-by=Helm")))
    (container, *_) = deployment["spec"]["template"]["spec"]["containers"]
    pods = {"spec": {"containers": [{"name": container["name"], "image": "theirs:1"}]}}
    identity = {key: deployment["metadata"][key] for key in ("name", "namespace")}
    theirs = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": identity, "spec": {"template": pods}}
    api.apply(theirs, manager="theirs")
    found = stack.lifecycle("drift", "--env", "dev", "--json")
    assert (found.returncode, found.stdout[:1]) == (1, "{"), found.stdout
    differences = {(one["resource"], one["kind"]) for one in json.loads(found.stdout)["differences"]}
    assert differences == {
        ("Bucket checkpoints", "changed"),
        ("LogGroup cluster", "deleted"),
        (f"SecurityGroupIngressRule {rule.rpartition(':')[2]}", "deleted"),
        ("ClusterQueue research", "changed"),
        (f"NetworkPolicy research/{policy['metadata']['name']}", "deleted"),
        (f"Deployment {identity['namespace']}/{identity['name']}", "changed"),
    }
    plain = stack.lifecycle("up", "--env", "dev", "--yes")
    assert (plain.returncode, len(stack.provider.outside)) == (0, 3), "an update compares with the state"
    fixed = stack.lifecycle("drift", "--env", "dev", "--fix", "--yes")
    assert (fixed.returncode, stack.provider.outside) == (0, {}), fixed.stdout
    again = stack.lifecycle("drift", "--env", "dev", "--json")
    assert (again.returncode, json.loads(again.stdout)["differences"]) == (0, []), again.stdout
    stack.api_server.cut()
    unanswered = stack.lifecycle("drift", "--env", "dev", "--json")
    assert unanswered.returncode != 0, unanswered.stdout
    assert "does not answer" in unanswered.stdout
    refused = stack.lifecycle("down", "--env", "dev", "--yes")
    assert refused.returncode == 3, refused.stdout
    assert "UNREACHABLE=1" in refused.stdout
    given_up = stack.lifecycle("down", "--env", "dev", "--yes", "--unreachable")
    assert given_up.returncode == 0, given_up.stdout
    assert stack.provider.ids == {}


def test_an_upgrade_goes_on_where_it_failed_replaces_nothing_and_takes_a_step_back(stack: Engine) -> None:
    upgrade = ("upgrade", "--env", "dev", "--canary", "a10g")
    refused = stack.lifecycle(*upgrade, "--to", "9.9.9")
    assert refused.returncode == 3
    assert "git checkout v9.9.9" in refused.stdout
    _release(stack, "0.2.0")
    plan = stack.lifecycle(*upgrade, "--plan")
    assert plan.returncode == 0, plan.stdout
    assert "platform: 0.1.0 to 0.2.0" in plan.stdout
    places = [
        plan.stdout.index(f". {name}:") for name in ("operators", "system-nodes", "canary", "gpu-nodes", "platform")
    ]
    assert places == sorted(places), plan.stdout
    before = len(stack.provider.calls)
    stack.provider.refusals = {("update", "eks/nodeGroup"): 1}
    failed = stack.lifecycle(*upgrade, "--yes")
    assert failed.returncode != 0
    assert "ResourceInUseException" in failed.stdout
    assert "step system-nodes failed" in failed.stdout
    assert {name.partition("-")[0] for name in _updated_groups(stack, before)} <= {"system", "heads"}, failed.stdout
    _succeed(stack, *upgrade, "--yes")
    assert {call for call, _ in stack.provider.calls[before:]} == {"update"}
    updated = _updated_groups(stack, before)
    assert len(updated) == len(set(updated)), "a step that was done is done again"
    order = list(dict.fromkeys(name.partition("-")[0] for name in updated))
    assert (set(order[:2]), order[2:]) == ({"system", "heads"}, ["a10g", "t4"])
    _check_outputs(stack, "0.2.0")
    again = stack.lifecycle(*upgrade, "--yes")
    assert again.returncode == 0, again.stdout
    assert "nothing to do" in again.stdout
    _release(stack, "0.1.0")
    back = stack.lifecycle(*upgrade, "--yes")
    assert back.returncode == 3
    assert "the platform would go back from 0.2.0 to 0.1.0" in back.stdout
    before = len(stack.provider.calls)
    _succeed(stack, *upgrade, "--rollback", "--only", "canary", "--yes")
    assert {name.partition("-")[0] for name in _updated_groups(stack, before)} == {"a10g"}
    _check_outputs(stack, "0.2.0")
    assert stack.lifecycle(*upgrade, "--yes").returncode == 3, "a step that was taken back allows a downgrade"


def _updated_groups(stack: Engine, since: int) -> list[str]:
    """Names of the node groups that were updated, in order."""
    changes = stack.provider.calls[since:]
    return [urn.rpartition("::")[2] for call, urn in changes if call == "update" and "aws:eks/nodeGroup:" in urn]


def _check_outputs(stack: Engine, platform: str) -> None:
    outputs = json.loads(stack.pulumi("stack", "output", "--json", "--stack", "dev").stdout)
    assert (outputs["platform"], json.loads(outputs["release"])["platform"]) == (platform, platform)


def test_a_teardown_outlasts_ctrl_c_and_what_aws_does_not_let_go_of_at_once(stack: Engine, tmp_path: Path) -> None:
    deletion = stack.provider.hold("eks/nodeGroup", "delete")
    with stack.started("down", "--env", "dev", "--yes", output=tmp_path / "output") as down:
        assert deletion.made.wait(_SECONDS), (tmp_path / "output").read_text()
        os.killpg(down.pid, signal.SIGINT)
        assert stack.provider.cancelled.wait(_SECONDS)
        deletion.answered.set()
        assert down.wait(_SECONDS) == 130
    assert any("aws:eks/cluster:" in urn for urn in stack.provider.ids)
    stack.provider.refusals = {("delete", "ec2/securityGroup"): 1, ("delete", "ec2/subnet"): 1}
    ended = stack.lifecycle("down", "--env", "dev", "--yes")
    assert ended.returncode == 0, ended.stdout
    assert "attempt 2 of 3" in ended.stdout
    assert "DependencyViolation" in ended.stdout
    assert stack.provider.ids == {}


def test_a_test_cluster_that_fails_its_test_is_taken_down(stack: Engine) -> None:
    """There are no nodes here, so the conformance tests cannot pass."""
    before = set(stack.provider.ids)
    options = ("--owner", "me@example.com", "--account", settings_of("dev").aws.allowed_accounts[0], "--ttl", "1h")
    ended = stack.lifecycle("cluster-test", *options, "--name", "test-4711")
    assert ended.returncode != 0
    assert "== conformance" in ended.stdout, ended.stdout
    assert "== down" in ended.stdout
    assert set(stack.provider.ids) == before
    listed = json.loads(stack.pulumi("stack", "ls", "--json").stdout)
    assert [one["name"].rpartition("/")[2] for one in listed] == ["dev"]


def _succeed(stack: Engine, *arguments: str) -> None:
    ran = stack.lifecycle(*arguments)
    assert ran.returncode == 0, ran.stdout


def _release(stack: Engine, version: str) -> None:
    """Give the checkout another version and node image, as that of another release has; our images keep their digests."""
    root = stack.checkout.root
    manifest = root / "infra/spec/release.yaml"
    image = f"1.35.4-2026{version.split('.')[1]:0>2}01"
    images = f"releases: {{AL2023_x86_64_STANDARD: {image}, AL2023_x86_64_NVIDIA: {image}}}"
    text = re.sub(r"releases: {AL2023.*}", images, manifest.read_text())
    text = re.sub(r"^((?:platform: |    tag: ))0\.[12]\.0", rf"\g<1>{version}", text, flags=re.MULTILINE)
    manifest.write_text(text, encoding="utf-8")
