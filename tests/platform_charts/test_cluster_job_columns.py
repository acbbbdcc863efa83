"""The table of RayJobs as the API server renders it for `kubectl get`, with the real CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.client import CoreV1Api

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.cluster_names import JOB_COLUMNS, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from tests.engines.kubernetes import Cluster

KUBERAYS = ["job status", "deployment status", "ray cluster name", "start time", "end time", "age"]
OURS = ["progress", "time left", "reason", "message"]


def table(cluster: Cluster, namespace: str) -> tuple[list[dict[str, object]], dict[str, dict[str, object]]]:
    """The columns, and the cells by name of the job and of the column (Kubernetes, "Receiving resources as Tables")."""
    header = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = cluster.client.call_api(
        "GET", f"{cluster.server}/apis/ray.io/v1/namespaces/{namespace}/rayjobs", header_params=header | token(cluster)
    )
    found = json.loads(answer.read())
    names = [column["name"] for column in found["columnDefinitions"]]
    rows = [dict(zip(names, row["cells"], strict=True)) for row in found["rows"]]
    return found["columnDefinitions"], {str(row["Name"]): row for row in rows}


def token(cluster: Cluster) -> dict[str, str]:
    headers: dict[str, str] = {}
    cluster.client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
    return headers


def kubeconfig_of(plane: ControlPlane, account: str, folder: Path) -> Path:
    """A kubeconfig with a token of an account of the monitoring namespace, as its pods have one."""
    core, file = CoreV1Api(plane.client()), folder / f"{account}-kubeconfig"
    made = core.create_namespaced_service_account_token(
        account, MONITORING_NAMESPACE, {"spec": {}}, _preload_content=False
    )
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
    kubeconfig["users"][0]["user"] = {"token": json.loads(made.data)["status"]["token"]}
    file.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    return file


def rayjob(name: str, annotations: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": "columns", "annotations": annotations},
        "spec": {"entrypoint": "true", "clusterSelector": {"ray.io/cluster": "none"}},
    }


@pytest.fixture
def namespace(custom_resources: Cluster) -> Iterator[str]:
    with custom_resources.namespace("columns") as name:
        yield name


def test_the_table_shows_progress_time_left_and_reason(custom_resources: Cluster, namespace: str) -> None:
    texts = {"progress": "1,240/5,000 (24 %)", "time left": "3h 15m", "reason": "insufficient quota"}
    job = rayjob("first", {JOB_COLUMNS[name]: text for name, text in texts.items()})
    with custom_resources.applied(job, rayjob("second", {})):
        custom_resources.update_status(job, {"jobStatus": "RUNNING", "message": "all is well"})
        definitions, rows = table(custom_resources, namespace)
    assert [one["name"] for one in definitions] == ["Name", *KUBERAYS, *OURS]
    wide = [one["name"] for one in definitions if one["priority"]]
    assert wide == ["message"]
    assert rows["first"] == {**rows["first"], **texts, "job status": "RUNNING", "message": "all is well"}
    assert [rows["second"][name] for name in OURS] == [None] * 4
