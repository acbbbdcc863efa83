"""What a team's pods see of the file system: the datasets and their own runs, on paper and on a real API server."""

from __future__ import annotations

import copy
import time

from infra.lifecycle.sandbox.recorded import recorded
from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import RUNS_CLAIM
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.jobs.request import JobRequest, Target
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes import Cluster
from tests.infra.aws.graphs import settings_of
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import rendered

PROD = recorded(settings_of("prod"))


def pods_of(team: str, target: Target) -> tuple[Manifest, ...]:
    """All pods of a job of the team, on one worker with a GPU."""
    job = JobRequest(
        name="own", kind="train", team=team, settings_yaml="", workers=1, gpus_per_worker=1, cpus_per_worker=1
    )
    return expand(rendered(job, target))


def storage_of(environment: str) -> tuple[Manifest, ...]:
    """Volumes and claims of an environment."""
    settings = settings_of(environment)
    return platform_objects(settings, load_release(), recorded(settings).facts)["storage"]


def test_no_pod_relies_on_a_sub_path_to_keep_teams_apart() -> None:
    target = Target(outputs=PROD.outputs, release=load_release(), catalog=load_catalog())
    pods = pods_of("research", target)
    containers = [one for pod in pods for one in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))]
    mounts = [mount for container in containers for mount in container.get("volumeMounts", ())]
    assert {"/mnt/datasets", "/mnt/runs"} < {mount["mountPath"] for mount in mounts}
    assert [mount for mount in mounts if "subPath" in mount or "subPathExpr" in mount] == []


def test_a_claim_of_another_namespace_cannot_take_a_teams_volume(kubernetes_api: Cluster) -> None:
    """Even while the team has not bound it: the copy here is of a volume whose claim is nowhere."""
    (volume,) = [one for one in storage_of("dev") if one["metadata"]["name"] == f"{RUNS_CLAIM}-research"]
    volume = copy.deepcopy(volume)
    volume["metadata"]["name"] += "-unbound"
    with kubernetes_api.applied(volume), kubernetes_api.namespace("intruder") as intruder:
        spec = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume["metadata"]["name"]}
        spec |= {key: volume["spec"][key] for key in ("accessModes", "storageClassName")}
        metadata = {"name": RUNS_CLAIM, "namespace": intruder}
        theirs = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        with kubernetes_api.applied(theirs):
            assert "already bound to a different claim" in warning_about(theirs, kubernetes_api)
            refused = kubernetes_api.read(theirs)
            kept = kubernetes_api.read(volume)
    assert refused is not None
    assert kept is not None
    assert refused["status"]["phase"] == "Pending"
    assert kept["spec"]["claimRef"] == volume["spec"]["claimRef"]


def warning_about(manifest: Manifest, cluster: Cluster, *, seconds: float = 30) -> str:
    """What the first warning about an object says, or that there was none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for event in cluster.items("v1", "Event", namespace=manifest["metadata"]["namespace"]):
            if event["type"] == "Warning" and event["involvedObject"]["name"] == manifest["metadata"]["name"]:
                return str(event["message"])
        time.sleep(0.05)
    return "no warning"
