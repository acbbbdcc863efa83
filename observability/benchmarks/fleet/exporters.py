"""The exporters of a fleet, each generated from its part of the inventory of metrics.

What no rule or dashboard of ours uses is not in the inventory. It is left out, except for node exporter: it is not in the inventory at
all, and on nodes with many CPUs it has more series than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.spec.cluster_names import RAY_PORTS
from observability.benchmarks.fleet.axes import Axis, label_sets
from observability.benchmarks.fleet.kubernetes import kube_state_metrics
from observability.benchmarks.fleet.page import Page
from observability.benchmarks.fleet.scrapes import (
    Contents,
    Scrape,
    Target,
    contents,
    metrics_of,
    ray_labels,
    rows,
    service_labels,
)
from observability.benchmarks.fleet.shape import Fleet, Pod, Run, address_of
from observability.benchmarks.fleet.values import Values
from observability.history import PARTS
from observability.metrics.external.model import ScrapedMetric, Source
from observability.metrics.inventory import Kind
from observability.time_classes import CLASSES

GPU_SECONDS, RAY_SECONDS, OTHER_SECONDS = 15, 15, 30
"""Intervals of the stack: of DCGM exporter, of our PodMonitors of Ray, and Prometheus Operator's default. A test compares them."""

NODE_EXPORTER_SERIES, NODE_EXPORTER_SERIES_PER_CPU = 531, 13
"""Series of node exporter 1.5.0 with the chart's options, counted on a virtual machine with two CPUs and five network devices."""

SEARCH_PREFIX = "ray_rtp_search_"

HEAD_PORTS = ("metrics", "as-metrics", "dash-metrics")
_GPU_MODEL = "NVIDIA H100 80GB HBM3"
_RAY_RESOURCES = "ray_resources"


def scrapes(fleet: Fleet, values: Values) -> list[Scrape]:
    """Everything that Prometheus scrapes in a fleet, except itself."""
    heads = [target for run in fleet.training for target in _head(run, values)]
    workers = [target for run in fleet.training for target in _workers(run, values)]
    platform = Pod(namespace="monitoring", name="platform-0", node=fleet.cpu_nodes[0], address="10.49.255.1")
    return [
        Scrape(name="DCGM exporter", seconds=GPU_SECONDS, targets=list(_gpus(fleet, values)), honor_labels=True),
        Scrape(name="Ray heads", seconds=RAY_SECONDS, targets=heads),
        Scrape(name="Ray workers", seconds=RAY_SECONDS, targets=workers),
        Scrape(name="kubelet", seconds=OTHER_SECONDS, targets=list(_kubelets(fleet, values)), honor_labels=True),
        Scrape(
            name="kube-state-metrics",
            seconds=OTHER_SECONDS,
            targets=[
                Target(
                    labels=service_labels(platform, service="kube-state-metrics", port=8080),
                    page=Page(kube_state_metrics(fleet), values),
                )
            ],
            honor_labels=True,
        ),
        Scrape(name="node exporter", seconds=OTHER_SECONDS, targets=list(_node_exporters(fleet, values))),
        Scrape(name="Fluent Bit", seconds=OTHER_SECONDS, targets=list(_log_shippers(fleet, values))),
        Scrape(name="operators", seconds=OTHER_SECONDS, targets=list(_operators(fleet, values)), honor_labels=True),
    ]


def _gpus(fleet: Fleet, values: Values) -> Iterator[Target]:
    """DCGM exporter of each GPU node; the pod in a series is the one that uses the GPU."""
    labels = ("gpu", "device", "modelName", "UUID", "pci_bus_id", "namespace", "pod", "container")
    for run in fleet.training:
        for worker in run.workers:
            user = (worker.namespace, worker.name, "ray-worker")
            gpus = [
                (str(gpu), f"nvidia{gpu}", _GPU_MODEL, f"GPU-{worker.address}-{gpu}", f"00000000:{gpu:02x}:00.0", *user)
                for gpu in range(fleet.gpus)
            ]
            exporter = Pod(
                namespace="gpu-system",
                name=f"dcgm-exporter-{worker.name}",
                node=worker.node,
                address=worker.address,
            )
            yield Target(
                labels=service_labels(exporter, service="dcgm-exporter", port=9400, node=True),
                page=Page(contents(metrics_of("DCGM exporter"), [Axis(labels, gpus)], more=labels), values),
            )


def _head(run: Run, values: Values) -> Iterator[Target]:
    """A head: Ray's metrics, and those of a search's driver; the other two ports have no metric of the inventory."""
    search = [
        Axis.of("search", [run.name]),
        Axis.of("status", ["running", "done", "stopped", "failed"]),
        Axis.of("metric", ["val/loss"]),
    ]
    driver = contents(metrics_of("trainer", prefix=SEARCH_PREFIX), search) if run.is_search else ()
    for port in HEAD_PORTS:
        found = [*_ray(is_head=True), *driver] if port == "metrics" else []
        yield Target(labels=ray_labels(run, run.head, port=port, number=RAY_PORTS[port]), page=Page(found, values))


def _workers(run: Run, values: Values) -> Iterator[Target]:
    """The worker pods of a run; the first one has the trainer's metrics too."""
    for number, worker in enumerate(run.workers):
        trainer = _trainer(run) if number == 0 else ()
        yield Target(
            labels=ray_labels(run, worker, port="metrics", number=RAY_PORTS["metrics"]),
            page=Page([*_ray(is_head=False), *trainer], values),
        )


def _trainer(run: Run) -> Contents:
    axes = [
        Axis.of("run", [run.name]),
        Axis.of("rank", range(run.ranks)),
        Axis.of("part", PARTS),
        Axis.of("class", CLASSES),
        Axis.of("state", ["allocated", "reserved"]),
        Axis.of("unit", ["tokens"]),
        Axis.of("metric", ["accuracy", "perplexity"]),
        Axis.of("split", ["validation", "test"]),
    ]
    return contents([one for one in metrics_of("trainer") if not one.name.startswith(SEARCH_PREFIX)], axes)


def _ray(*, is_head: bool) -> Contents:
    """Ray's own metrics of a node."""
    axes = [
        Axis.of("IsHeadNode", ["true" if is_head else "false"]),
        Axis.of("Location", ["MMAP_SHM", "MMAP_DISK", "SPILLED", "WORKER_HEAP"]),
        Axis.of("State", ["FINISHED", "RUNNING", "PENDING_NODE_ASSIGNMENT", "ALIVE", "IDLE", "DEAD"]),
        Axis.of("Source", ["gcs", "executor", "owner"]),
        Axis.of("IsRetry", ["0", "1"]),
        Axis.of("Name", ["Rank"]),
    ]
    names = ["CPU", "GPU", "memory", "object_store_memory", "node:__internal_head__"]
    of_resources = [Axis.of("Name", names), Axis.of("State", ["USED", "AVAILABLE"])]
    for metric in metrics_of("Ray"):
        yield metric, label_sets(metric.labels, of_resources if metric.name == _RAY_RESOURCES else axes)


def _kubelets(fleet: Fleet, values: Values) -> Iterator[Target]:
    """The kubelet of each node: the traffic of its pods."""
    labels = ("namespace", "pod", "id", "interface")
    for node, pods in fleet.pods_by_node.items():
        own = [(pod.namespace, pod.name, f"/kubepods.slice/{pod.name}", "eth0") for pod in pods]
        kubelet = Pod(namespace="kube-system", name="", node=node, address=address_of(node))
        yield Target(
            labels=service_labels(
                kubelet, service="kube-prometheus-stack-kubelet", job="kubelet", port=10250, node=True
            ),
            page=Page(contents(metrics_of("kubelet"), [Axis(labels, own)], more=labels), values),
        )


def _node_exporters(fleet: Fleet, values: Values) -> Iterator[Target]:
    """Node exporter of each node: as many series as a real one has, under names of our own, the same on all nodes."""
    number = NODE_EXPORTER_SERIES + NODE_EXPORTER_SERIES_PER_CPU * fleet.vcpus
    source = Source(component="node exporter", project="prometheus/node_exporter", version="", file="")
    families: tuple[tuple[Kind, int], ...] = (("counter", number // 2), ("gauge", number - number // 2))
    metrics = [
        ScrapedMetric(name=f"simulated_node_{kind}", kind=kind, help="A series.", labels=("item",), source=source)
        for kind, _ in families
    ]
    page = Page(
        [
            (metric, [{"item": str(one)} for one in range(count)])
            for metric, (_, count) in zip(metrics, families, strict=True)
        ],
        values,
    )
    for pod in _daemons(fleet, "kube-prometheus-stack-prometheus-node-exporter"):
        yield Target(labels=service_labels(pod, service="node-exporter", port=9100), page=page)


def _log_shippers(fleet: Fleet, values: Values) -> Iterator[Target]:
    page = Page(contents(metrics_of("Fluent Bit"), [Axis.of("name", ["cloudwatch_logs.0"])]), values)
    for pod in _daemons(fleet, "fluent-bit"):
        yield Target(labels=service_labels(pod, service="fluent-bit", port=2020), page=page)


def _daemons(fleet: Fleet, name: str) -> Iterator[Pod]:
    for pods in fleet.pods_by_node.values():
        yield next(pod for pod in pods if pod.name.startswith(name))


def _operators(fleet: Fleet, values: Values) -> Iterator[Target]:
    """KubeRay, two replicas of Kueue, and the cluster autoscaler."""
    jobs = Axis(("namespace", "name"), [(run.team, run.name) for run in fleet.training])
    kuberay = [jobs, Axis.of("condition", ["true"]), Axis.of("deployment_status", ["Running"])]
    autoscaler = [
        Axis.of("reason", ["cloudProviderError", "timeout", "empty", "underutilized"]),
        Axis.of("state", ["ready", "unready", "notStarted", "longUnregistered", "unregistered"]),
        Axis.of("type", ["unschedulable", "scheduler_unprocessed"]),
    ]
    yield _operator("kuberay-system", "kuberay-operator", fleet, Page(contents(metrics_of("KubeRay"), kuberay), values))
    for role in ("leader", "follower"):
        page = Page(contents(metrics_of("Kueue"), _queues(fleet, role)), values)
        yield _operator("kueue-system", f"kueue-controller-manager-{role}", fleet, page)
    page = Page(contents(metrics_of("cluster autoscaler"), autoscaler), values)
    yield _operator("kube-system", "cluster-autoscaler", fleet, page)


def _queues(fleet: Fleet, role: str) -> list[Axis]:
    """The queue of each team, in one cohort."""
    return [
        Axis.of("cluster_queue", fleet.teams),
        Axis.of("cohort", ["all"]),
        Axis.of("flavor", ["cpu", "h100"]),
        Axis.of("resource", ["cpu", "memory", "nvidia.com/gpu", "vpc.amazonaws.com/efa"]),
        Axis.of("priority_class", ["low", "normal", "high"]),
        Axis.of("replica_role", [role]),
        Axis.of("status", ["active", "inadmissible", "pending", "terminating"]),
        rows(["reason", "underlying_cause"], "Preempted InClusterQueue", "PodsReadyTimeout WaitForStart"),
    ]


def _operator(namespace: str, name: str, fleet: Fleet, page: Page) -> Target:
    pod = Pod(namespace=namespace, name=f"{name}-0", node=fleet.cpu_nodes[0], address="10.49.255.2")
    return Target(labels=service_labels(pod, service=name, port=8443), page=page)
