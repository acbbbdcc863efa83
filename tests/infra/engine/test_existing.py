"""An environment on a VPC and an EKS cluster that exist, in the real Pulumi engine: the stack comes and goes, and they stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_with
from infra.spec.manifest import Manifest
from tests.engines.eks_api import add_existing_cluster
from tests.engines.pulumi_cluster import REPLACED
from tests.engines.pulumi_engine import Engine, engine
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.eks import Eks
from tests.infra.lifecycle.existing.network import make_network
from tests.infra.lifecycle.existing.test_cluster import RANGES, Existing, prepare

pytestmark = pytest.mark.timeout(2700)

NAME = "existing-cluster"
THEIRS: tuple[Manifest, ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "theirs"}},
)


def test_a_stack_comes_and_goes_on_a_cluster_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        preview = stack.pulumi("preview", "--stack", NAME, "--expect-no-changes")
        assert preview.returncode == 0, preview.stdout
        assert _drift(stack) <= {f"{one['kind']} {one['metadata']['name']}" for one in REPLACED}
        _succeed(stack, "down", "--yes")
        assert stack.provider.ids == {}
        assert all(api.read(manifest) is not None for manifest in THEIRS)
        assert _namespaces(api) == {"default", "kube-node-lease", "kube-public", "kube-system", "theirs"}


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


def _drift(stack: Engine) -> set[str]:
    """Kind and name of what differs."""
    found = stack.lifecycle("drift", "--env", NAME, "--json")
    named = [one["resource"].split() for one in json.loads(found.stdout)["differences"]]
    return {f"{kind} {name.rpartition('/')[2]}" for kind, name in named}


def _namespaces(api: KubernetesApi) -> set[str]:
    return {one["metadata"]["name"] for one in api.items("v1", "Namespace")}
