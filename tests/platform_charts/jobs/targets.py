"""Stacks to render for: those of the shipped environments, as their program records them, and made-up ones."""

from __future__ import annotations

from functools import cache
from typing import Any

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.outputs import GpuGroupOutput, StackOutputs, read_outputs
from infra.spec.release import load_release
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest, Target
from tests.infra.aws.graphs import graph


@cache
def target_of(environment: str) -> Target:
    """The stack of a shipped environment."""
    outputs = read_outputs(graph(environment).outputs, file=environment)
    return Target(outputs=outputs, release=load_release(), catalog=load_catalog())


def with_groups(*groups: GpuGroupOutput) -> Target:
    """Prod's stack with other GPU groups."""
    prod = target_of("prod")
    outputs = StackOutputs.model_validate({**prod.outputs.model_dump(), "gpu_groups": groups})
    return Target(outputs=outputs, release=prod.release, catalog=prod.catalog)


def group_of(instance_type: str, **changes: Any) -> GpuGroupOutput:  # noqa: ANN401  # fields of any type
    """A group of one type of the catalogue, on demand and with all its EFA interfaces."""
    instance = load_catalog().find_instance(instance_type)
    fields = {
        "name": instance_type.replace(".", "-"),
        "instance_type": instance_type,
        "gpus_per_node": instance.gpus,
        "devices_per_gpu": 1,
        "efa_per_node": instance.efa_interfaces,
        "max_nodes": 4,
        "capacity_type": "ON_DEMAND",
        "labels": {GROUP_LABEL: changes.get("name", instance_type.replace(".", "-"))},
        "taints": ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},),
    }
    return GpuGroupOutput.model_validate({**fields, **changes})


def job(**changes: Any) -> JobRequest:  # noqa: ANN401  # fields of any type
    """A run of 16 GPUs of the team `research`."""
    fields: dict[str, Any] = {
        "name": "resnet101",
        "kind": "train",
        "team": "research",
        "settings_yaml": "scale:\n  workers: 16\n",
        "workers": 16,
        "gpus_per_worker": 1,
        "cpus_per_worker": 10,
    }
    return JobRequest(**{**fields, **changes})


def search_job(**changes: Any) -> JobRequest:  # noqa: ANN401 - fields of any type
    """Four trials of two GPUs each."""
    return job(**{"name": "first", "kind": "search", "workers": 2, "worker_groups": 4, **changes})


def rendered(request: JobRequest, target: Target) -> Manifest:
    """The RayJob alone."""
    return render_job(request, target)[1]


def worker_of(manifest: Manifest) -> Manifest:
    """Specification of the worker pods of a RayJob."""
    template: Manifest = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
    return template


def variables(container: Manifest) -> dict[str, str]:
    """Variables of a container that have a plain value."""
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
