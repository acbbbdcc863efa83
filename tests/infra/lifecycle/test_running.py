"""The preflight of an environment that runs already, against a real API server."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.lifecycle.preflight import Case, notes, the_clusters_definitions_can_be_upgraded
from infra.lifecycle.running import StackCluster
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.crds import apply_crds
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import CHART_VERSION
from tests.engines.kubernetes import Cluster
from tests.engines.ports import free_port
from tests.infra.lifecycle.test_preflight import case
from tests.platform_charts.charts.archives import crd

AWS = """#!/bin/sh
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "%s"}}
END
"""
Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a shell script on a PATH that has nothing else but the system's own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, text: str) -> None:
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o755)

    return put


def stack(program: Program, *, endpoint: str, authority: bytes = b"x", token: str = "") -> None:
    """A `pulumi` that knows a stack with a cluster, and an `aws` that has a token for it."""
    cluster = {"name": "rtp-dev", "endpoint": endpoint, "kubernetes": "1.35"}
    outputs = {"cluster": {**cluster, "certificate_authority": base64.b64encode(authority).decode()}}
    program("pulumi", f"#!/bin/sh\ncat <<'END'\n{json.dumps(outputs)}\nEND\n")
    program("aws", AWS % token)


@pytest.fixture
def running(control_plane: ControlPlane, program: Program) -> None:
    """A stack whose cluster is the real API server."""
    way = yaml.safe_load(control_plane.kubeconfig.read_text())
    reached, user = way["clusters"][0]["cluster"], way["users"][0]["user"]
    authority = base64.b64decode(reached["certificate-authority-data"])
    stack(program, endpoint=reached["server"], authority=authority, token=user["token"])


class Pinned:
    """A release that pins these definitions of KubeRay, and none of another chart."""

    def __init__(self, *definitions: Manifest) -> None:
        self._definitions = definitions

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """Those of the group."""
        return tuple(one for one in self._definitions if one["spec"]["group"] == group)


def ants(*versions: str, stored: str, chart: str = "1.7.0") -> Manifest:
    """A definition with these versions, of which one is stored."""
    made = crd("ants", "ray.io")
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**first, "name": name, "storage": name == stored} for name in versions]
    made["metadata"]["annotations"] = {
        CHART_VERSION: chart,
        "api-approved.kubernetes.io": "unapproved, a test's own",
    }
    return made


@pytest.fixture
def older(kubernetes_api: Cluster) -> Iterator[Cluster]:
    """A cluster whose ants were stored in v1alpha1 first, and are in v1 now; one ant is still as it was."""
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
    """The preflight of dev with a release of these definitions."""
    one = case()
    return replace(one, cluster=StackCluster(one.settings), definitions=Pinned(*pinned))


def answers(one: Case) -> list[str]:
    """What the check says."""
    return [said for said, _ in the_clusters_definitions_can_be_upgraded(one)]


@pytest.mark.usefixtures("running", "older")
def test_a_release_without_a_version_that_objects_are_stored_in_is_refused() -> None:
    (said,) = answers(upgrade(ants("v1", stored="v1")))
    assert "CRD ants.ray.io cannot be upgraded" in said
    assert "version v1alpha1 has stored objects, and the new CRD lacks it" in said


@pytest.mark.usefixtures("running", "older")
def test_a_release_of_an_older_chart_is_refused() -> None:
    (said,) = answers(upgrade(ants("v1alpha1", "v1", stored="v1", chart="1.6.2")))
    assert "chart version 1.7.0 would become 1.6.2" in said


@pytest.mark.usefixtures("running", "older")
def test_a_release_that_takes_nothing_away_passes() -> None:
    newer = ants("v1alpha1", "v1", "v2", stored="v2", chart="1.10.0")
    assert answers(upgrade(newer, crd("bees", "ray.io"))) == []
    assert not [note for note in notes(upgrade(newer)) if "no cluster yet" in note]


def test_before_the_first_up_there_is_nothing_to_compare_and_the_preflight_says_so(program: Program) -> None:
    program("pulumi", "#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    first = upgrade(ants("v1", stored="v1"))
    assert answers(first) == []
    assert [note for note in notes(first) if "no cluster yet" in note]


def test_a_first_up_that_was_broken_off_has_no_cluster(program: Program) -> None:
    program("pulumi", "#!/bin/sh\necho '{}'\n")
    assert StackCluster(case().settings).definitions() is None


def test_what_pulumi_cannot_tell_is_no_first_up(program: Program) -> None:
    program("pulumi", "#!/bin/sh\necho 'error: could not reach the backend' >&2; exit 255\n")
    with pytest.raises(PlatformError, match="could not reach the backend"):
        StackCluster(case().settings).definitions()


def test_a_cluster_out_of_reach_is_named_with_what_to_do(program: Program) -> None:
    endpoint = f"https://127.0.0.1:{free_port()}"
    stack(program, endpoint=endpoint)
    with pytest.raises(RefusedError, match=f"cluster rtp-dev at {endpoint} does not show its CRDs") as caught:
        StackCluster(case().settings).definitions()
    assert "pulumi up --target" in caught.value.remedy


def test_a_cluster_that_refuses_the_token_is_named(control_plane: ControlPlane, program: Program) -> None:
    reached: dict[str, Any] = yaml.safe_load(control_plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(reached["certificate-authority-data"])
    stack(program, endpoint=reached["server"], authority=authority, token="wrong")
    with pytest.raises(RefusedError, match=r"does not show its CRDs: .* answers 401: Unauthorized"):
        StackCluster(case().settings).definitions()


def test_without_the_aws_program_there_is_no_token(program: Program, tmp_path: Path) -> None:
    stack(program, endpoint="https://127.0.0.1:1")
    (tmp_path / "aws").unlink()
    with pytest.raises(RefusedError, match="no `aws` on PATH, which gives the token for cluster rtp-dev"):
        StackCluster(case().settings).definitions()
