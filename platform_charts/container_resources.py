"""CPU and memory of the platform's containers: the table, and the rule that it follows.

Every container sets both requests and both limits, because Helm merges a chart's defaults into whatever our values leave
out: KubeRay's default CPU limit is half of our request, and the API server refuses such a pod. Helm would also remove a
default whose value is null, but only as long as every tool in between passes nulls on.

* Memory is not compressible, so the limit equals the request: no pod is evicted for what another one uses.
* The CPU request is what the container needs on a busy node. The limit is several times that, so that it does not throttle
  in normal operation. On a GPU node it keeps a daemon that spins away from the data loaders, and Go programs size their
  thread pools by it (GOMAXPROCS, Go 1.25) instead of by the 192 cores of a p5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class ContainerResources:
    """Resources of one container, as Kubernetes quantities.

    Attributes:
        cpu: request of CPU.
        memory: request and limit of memory.
        cpu_limit: limit of CPU.
    """

    cpu: str
    memory: str
    cpu_limit: str = "1"

    def manifest(self) -> Manifest:
        """The field `resources` of a container."""
        return {
            "requests": {"cpu": self.cpu, "memory": self.memory},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory},
        }


CONTAINERS: Mapping[str, ContainerResources] = {
    # On system nodes. A controller that lists every object at its start needs more than one core for some seconds.
    "cluster-autoscaler": ContainerResources(cpu="100m", memory="768Mi"),
    # The chart's 512 Mi are too little for several hundred Ray clusters, because the operator caches their pods.
    "kuberay-operator": ContainerResources(cpu="200m", memory="1Gi", cpu_limit="2"),
    # It serves the webhooks of every job, so a slow replica delays every submission.
    "kueue": ContainerResources(cpu="500m", memory="1Gi", cpu_limit="2"),
    "alertmanager": ContainerResources(cpu="20m", memory="128Mi"),
    "alert-webhook": ContainerResources(cpu="10m", memory="128Mi"),
    "prometheus-operator": ContainerResources(cpu="100m", memory="256Mi"),
    "prometheus-config-reloader": ContainerResources(cpu="10m", memory="64Mi"),
    "kube-webhook-certgen": ContainerResources(cpu="10m", memory="64Mi"),
    # A page of RayJobs, and the parts of all of them that matter.
    "job-progress": ContainerResources(cpu="20m", memory="192Mi"),
    # The records of the jobs that run, at most 192 KiB each as JSON, and a page of RayJobs of each team.
    "job-recorder": ContainerResources(cpu="20m", memory="384Mi"),
    # All RayJobs that are elastic, and all Workloads, with their pod templates.
    "job-sizer": ContainerResources(cpu="20m", memory="384Mi"),
    "grafana": ContainerResources(cpu="100m", memory="512Mi", cpu_limit="2"),
    "grafana-sidecar": ContainerResources(cpu="10m", memory="128Mi"),
    # It lists 50 kinds of resources in each region, service after service.
    "reaper": ContainerResources(cpu="50m", memory="512Mi"),
    # It passes bodies on in pieces and keeps none of them.
    "sso-proxy": ContainerResources(cpu="50m", memory="256Mi"),
    "kube-state-metrics": ContainerResources(cpu="50m", memory="256Mi"),
    "feature-discovery-master": ContainerResources(cpu="50m", memory="256Mi"),
    "feature-discovery-gc": ContainerResources(cpu="10m", memory="128Mi"),
    # On every node, or on every GPU node: `platform_charts.jobs.resources` leaves room for their requests.
    "node-exporter": ContainerResources(cpu="50m", memory="64Mi"),
    "nvidia-device-plugin": ContainerResources(cpu="30m", memory="256Mi"),
    "feature-discovery-worker": ContainerResources(cpu="10m", memory="128Mi"),
    "aws-efa-k8s-device-plugin": ContainerResources(cpu="10m", memory="64Mi"),
    # It only sleeps.
    "image-pull": ContainerResources(cpu="5m", memory="16Mi"),
    # Up to 32 chunks of 2 MB in memory, and those of a backlog after a start.
    "fluent-bit": ContainerResources(cpu="50m", memory="256Mi"),
}
"""Resources by container of a chart. Those of dcgm-exporter and MLflow depend on the settings and stand in their modules."""


def prometheus_resources(memory_gib: int) -> ContainerResources:
    """Resources of Prometheus, whose memory depends on the number of nodes (`infra.spec.monitoring_size`).

    Queries and compaction use all cores that the smallest system node has.
    """
    return ContainerResources(cpu="500m", memory=f"{memory_gib}Gi", cpu_limit="4")


UNSIZED: Mapping[str, Mapping[str, str]] = {
    "defaultRequest": {"cpu": "5m", "memory": "32Mi"},
    "default": {"cpu": "1", "memory": "128Mi"},
}
"""LimitRange of `gpu-system` for containers whose chart takes no resources: init containers and sidecars of the device plugin.

The memory limit is well above the request, because a node whose device plugin does not start offers no GPUs.
"""
