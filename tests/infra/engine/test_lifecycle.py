"""The life of every environment in the real Pulumi engine, from an empty account to its end, as the deployment guide has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from infra.kube.connection import connect_with
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


def test_a_stack_comes_and_goes_on_a_cluster_that_exists_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eks = Eks()
    add_existing_cluster(eks, monkeypatch)
    with engine(tmp_path, settings_of(NAME), monkeypatch) as stack:
        _state_in_settings(stack, _make_cluster(stack, eks))
        api = connect_with(next(tmp_path.rglob("kubeconfig*")))
        for manifest in THEIRS:
            api.create(manifest)
        stack.pulumi("stack", "init", NAME)
        _succeed(stack, "up", "--yes")
        made = {urn.split("::")[2].rpartition("$")[2] for call, urn in stack.provider.calls if call == "create"}
        assert made & {"aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"} == set()
        assert {"aws:eks/nodeGroup:NodeGroup", "aws:ec2/securityGroup:SecurityGroup"} <= made
        _expect_no_changes(stack, NAME)
        found = stack.lifecycle("drift", "--env", NAME, "--json")
        named = [one["resource"].split() for one in json.loads(found.stdout)["differences"]]
        drift = {f"{kind} {name.rpartition('/')[2]}" for kind, name in named}
        assert drift <= {f"{one['kind']} {one['metadata']['name']}" for one in REPLACED}
        _succeed(stack, "down", "--yes")
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


def _succeed(stack: Engine, command: str, *arguments: str) -> None:
    ran = stack.lifecycle(command, "--env", NAME, *arguments)
    assert ran.returncode == 0, ran.stdout
