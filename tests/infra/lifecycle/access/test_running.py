"""The preflight of an environment with a running cluster, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.kube.definitions import apply_crds
from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.preflight.checks import crds_can_be_upgraded, no_object_loses_a_field, notes
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import CHART_VERSION
from tests.engines.kubernetes import Cluster
from tests.engines.ports import free_port
from tests.infra.lifecycle.preflight.test_checks import case
from tests.platform_charts.charts.archives import crd

AWS = """#!/bin/sh
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "%s"}}
END
"""
Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a shell script on a PATH that otherwise has the system's programs only."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, text: str) -> None:
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o755)

    return put


def stack(program: Program, *, endpoint: str, authority: str = "eA==", token: str = "") -> None:
    """A fake `pulumi` with a stack that has a cluster, and a fake `aws` with a token for it."""
    cluster = {"name": "rtp-dev", "endpoint": endpoint, "kubernetes": "1.35"}
    outputs = {"cluster": {**cluster, "certificate_authority": authority}}
    program("pulumi", f"#!/bin/sh\ncat <<'END'\n{json.dumps(outputs)}\nEND\n")
    program("aws", AWS % token)


@pytest.fixture
def running(control_plane: ControlPlane, program: Program) -> None:
    real_stack(control_plane, program)


def real_stack(control_plane: ControlPlane, program: Program, *, token: str = "") -> None:
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    reached, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = reached["certificate-authority-data"]
    stack(program, endpoint=reached["server"], authority=authority, token=token or user["token"])


class Pinned:
    """A release that pins these CRDs of KubeRay, and none of another chart."""

    def __init__(self, *crds: Manifest) -> None:
        self._crds = crds

    def crds(self, group: str) -> tuple[Manifest, ...]:
        return tuple(one for one in self._crds if one["spec"]["group"] == group)


def ants(*versions: str, stored: str, chart: str = "1.7.0") -> Manifest:
    """A CRD with these versions, one of them the storage version."""
    made = crd("ants", "ray.io")
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**first, "name": name, "storage": name == stored} for name in versions]
    made["metadata"]["annotations"] = {CHART_VERSION: chart, "api-approved.kubernetes.io": "unapproved, a test's own"}
    return made


@pytest.fixture
def older(kubernetes_api: Cluster) -> Iterator[Cluster]:
    """A cluster whose storage version of ants moved from v1alpha1 to v1; one ant is still stored as v1alpha1."""
    before = ants("v1alpha1", "v1", stored="v1alpha1")
    ant = {"apiVersion": "ray.io/v1alpha1", "kind": "Ant", "metadata": {"name": "old", "namespace": "default"}}
    try:
        apply_crds(kubernetes_api, [before])
        kubernetes_api.apply(ant)
        apply_crds(kubernetes_api, [ants("v1alpha1", "v1", stored="v1")])
        yield kubernetes_api
    finally:
        kubernetes_api.delete_all([before])


def upgrade(*pinned: Manifest) -> Case:
    """The preflight of dev with a release of these CRDs."""
    one = case(role=None)
    return replace(one, cluster=StackCluster(one.settings), crds=Pinned(*pinned))


def answers(one: Case) -> list[str]:
    return [said for said, _ in crds_can_be_upgraded(one)]


@pytest.mark.extended
@pytest.mark.usefixtures("running", "older")
def test_a_release_that_removes_a_version_with_objects_or_is_older_is_refused() -> None:
    (said,) = answers(upgrade(ants("v1", stored="v1")))
    assert "CRD ants.ray.io cannot be upgraded" in said
    assert "version v1alpha1 has stored objects, and the new CRD lacks it" in said
    (said,) = answers(upgrade(ants("v1alpha1", "v1", stored="v1", chart="1.6.2")))
    assert "chart version 1.7.0 would become 1.6.2" in said
    newer = ants("v1alpha1", "v1", "v2", stored="v2", chart="1.10.0")
    assert answers(upgrade(newer, crd("bees", "ray.io"))) == []
    assert not [note for note in notes(upgrade(newer)) if "no cluster yet" in note]


@pytest.mark.usefixtures("running")
def test_a_release_without_a_field_that_an_object_sets_is_refused(older: Cluster) -> None:
    older.patch(
        {"apiVersion": "ray.io/v1", "kind": "Ant", "metadata": {"name": "old", "namespace": "default"}},
        {"spec": {"legs": 6, "hill": {"size": "big"}}},
    )
    narrower = ants("v1alpha1", "v1", stored="v1", chart="1.10.0")
    fields = {"legs": {"type": "integer"}, "hill": {"type": "object", "properties": {}}}
    spec = {"type": "object", "properties": fields}
    for version in narrower["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    (said,) = [said for said, _ in no_object_loses_a_field(upgrade(narrower))]
    assert said == "CRD ants.ray.io of the release lacks spec.hill.size, which is set by default/old"
    assert list(no_object_loses_a_field(upgrade(ants("v1alpha1", "v1", stored="v1")))) == []


def test_without_a_stack_or_outputs_there_is_no_cluster_yet_but_an_error_is_an_error(program: Program) -> None:
    program("pulumi", "#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    first = upgrade(ants("v1", stored="v1"))
    assert answers(first) == []
    assert list(no_object_loses_a_field(first)) == []
    assert [note for note in notes(first) if "no cluster yet" in note]
    program("pulumi", "#!/bin/sh\necho '{}'\n")  # a first `up` that was interrupted
    assert StackCluster(first.settings).crds() is None
    program("pulumi", "#!/bin/sh\necho 'error: could not reach the backend' >&2; exit 255\n")
    with pytest.raises(PlatformError, match="could not reach the backend"):
        StackCluster(first.settings).crds()


def test_an_unreachable_cluster_and_a_missing_aws_cli_are_named(program: Program, tmp_path: Path) -> None:
    endpoint = f"https://127.0.0.1:{free_port()}"
    stack(program, endpoint=endpoint)
    with pytest.raises(RefusedError, match=f"cannot read the CRDs of cluster rtp-dev at {endpoint}") as caught:
        StackCluster(case(role=None).settings).crds()
    assert "pulumi up --target" in caught.value.remedy
    (tmp_path / "aws").unlink()
    with pytest.raises(RefusedError, match="no `aws` on PATH to get a token for cluster rtp-dev"):
        StackCluster(case(role=None).settings).crds()


def test_a_cluster_that_refuses_the_token_is_named(control_plane: ControlPlane, program: Program) -> None:
    real_stack(control_plane, program, token="wrong")
    with pytest.raises(RefusedError, match=r"cannot read the CRDs of .* answers 401: Unauthorized"):
        StackCluster(case(role=None).settings).crds()
