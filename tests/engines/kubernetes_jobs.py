"""Jobs of the shipped configurations, and their pods as the scheduler places them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.rayjob import QUEUE_LABEL, render_job
from platform_charts.jobs.request import JobRequest
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment
from tests.kuberay.expand import expand

_FOLDER = Path(__file__).resolve().parents[2] / "training" / "configs"
CONFIGS = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))
"""Names of the shipped configurations."""


def shipped(config: str, *, team: str) -> JobRequest:
    """The job of a shipped configuration."""
    text = (_FOLDER / f"{config}.yaml").read_text(encoding="utf-8")
    scale = yaml.safe_load(text).get("scale", {})
    return job(
        config,
        team=team,
        settings_yaml=text,
        workers=scale.get("workers", 2),
        gpus_per_worker=int(scale.get("gpu", False)),
        cpus_per_worker=scale.get("cpus_per_worker", 1),
    )


def fits(request: JobRequest, environment: Environment) -> bool:
    """Whether the environment has nodes for the request; the disposable one has only a few small ones."""
    try:
        render_job(request, environment.target)
    except RefusedError:
        return False
    return True


def job(name: str, *, team: str, **fields: Any) -> JobRequest:  # noqa: ANN401 - fields of a JobRequest
    """A small training job; `fields` override its fields."""
    small = {"kind": "train", "settings_yaml": "loop: { epochs: 1 }\n", "workers": 1, "gpus_per_worker": 1}
    return JobRequest(**{"name": name, "team": team, "cpus_per_worker": 2, **small, **fields})


def rayjob(environment: Environment, request: JobRequest) -> Manifest:
    """The RayJob of a request, without the ConfigMap of its settings."""
    (found,) = [one for one in render_job(request, environment.target) if one["kind"] == "RayJob"]
    return found


def raycluster(environment: Environment, name: str) -> Manifest:
    """A RayCluster as an administrator may create one: the cluster of a job with one worker."""
    made = rayjob(environment, job(name, team=environment.team))
    labels = {QUEUE_LABEL: environment.team, JOB_LABEL: name}
    spec = made["spec"]["rayClusterSpec"]
    return api_object("ray.io/v1", "RayCluster", name, namespace=environment.team, labels=labels, spec=spec)


def node_type(pod: Manifest) -> str:
    """`head`, `worker`, or `submitter`."""
    return str(pod["metadata"]["labels"].get("ray.io/node-type", "submitter"))


def is_ready(pod: Manifest) -> bool:
    """Whether all containers of a pod are ready."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@contextmanager
def placed(environment: Environment, request: JobRequest) -> Iterator[list[Manifest]]:
    """The pods of a job on the nodes that the scheduler chose, while the context is open."""
    pods = expand(rayjob(environment, request))
    with created(environment.cluster, pods):
        yield [environment.cluster.await_(pod, lambda it: "nodeName" in it["spec"], what="scheduled") for pod in pods]


@contextmanager
def created(cluster: Cluster, pods: Sequence[Manifest]) -> Iterator[None]:
    """Pods that exist while the context is open."""
    try:
        for pod in pods:
            cluster.create(pod)
        yield
    finally:
        cluster.delete_all(pods)
