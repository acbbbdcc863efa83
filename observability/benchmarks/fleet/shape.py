"""The simulated fleet: nodes, runs, and the pods of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from infra.spec.capacity import split
from infra.spec.errors import SettingsError

CPU_NODE_SHARE = 10
"""One of so many nodes has no GPUs: system nodes, and those of Ray's heads."""

DAEMONS = (
    "aws-node",
    "kube-proxy",
    "ebs-csi-node",
    "efs-csi-node",
    "eks-pod-identity-agent",
    "kube-prometheus-stack-prometheus-node-exporter",
    "fluent-bit",
)
"""DaemonSets of every node, each with a pod on it."""

GPU_DAEMONS = ("dcgm-exporter", "nvidia-device-plugin", "gpu-feature-discovery", "aws-efa-k8s-device-plugin")
"""DaemonSets of the GPU nodes only."""

GPU_GROUP, GPU_TYPE = "a100", "p4d.24xlarge"
"""Node group of the GPU nodes, and the name of their instance type, whatever the fleet's numbers are."""

_TEAMS = 10
_SEARCH_SHARE = 10
"""One of so many runs is a trial of a search, whose driver exports metrics of its own."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, and where it runs."""

    namespace: str
    name: str
    node: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run: a RayJob with a head and worker pods, each of which has all GPUs of its node.

    Attributes:
        name: of the job, its Ray cluster and its run.
        workers: the first one has rank 0, which exports the trainer's metrics.
        ranks: world size.
        is_search: whether the run belongs to a search.
    """

    name: str
    team: str
    head: Pod
    workers: tuple[Pod, ...]
    ranks: int
    is_search: bool


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Nodes and the runs on them.

    Attributes:
        nodes: all nodes; a tenth of them, at least one, has no GPUs.
        runs: runs at a time, each with at least one GPU node of its own.
        gpus: GPUs of a GPU node.
        vcpus: virtual CPUs of a node, each of which has series of its own in node exporter.

    Raises:
        SettingsError: a number is out of range, or there are more runs than GPU nodes.
    """

    nodes: int
    runs: int
    gpus: int = 8
    vcpus: int = 96

    def __post_init__(self) -> None:
        for name, value, smallest, largest in (
            ("nodes", self.nodes, 2, 10_000),
            ("runs", self.runs, 1, 10_000),
            ("gpus", self.gpus, 1, 16),
            ("vcpus", self.vcpus, 1, 1024),
        ):
            if not smallest <= value <= largest:
                raise SettingsError(f"{name} = {value}: must be from {smallest} to {largest:,}")
        if self.runs > len(self.gpu_nodes):
            raise SettingsError(
                f"runs = {self.runs}: each needs a GPU node of its own, and {self.nodes} nodes have {len(self.gpu_nodes)} of them",
                remedy="choose fewer runs or more nodes",
            )

    @cached_property
    def cpu_nodes(self) -> tuple[str, ...]:
        """Names of the nodes without GPUs."""
        return tuple(map(_node, range(max(1, self.nodes // CPU_NODE_SHARE))))

    @cached_property
    def gpu_nodes(self) -> tuple[str, ...]:
        """Names of the nodes with GPUs."""
        return tuple(map(_node, range(len(self.cpu_nodes), self.nodes)))

    @cached_property
    def pods_by_node(self) -> Mapping[str, tuple[Pod, ...]]:
        """All pods of each node."""
        pods = {node: list(self._daemons(node, DAEMONS)) for node in (*self.cpu_nodes, *self.gpu_nodes)}
        for node in self.gpu_nodes:
            pods[node] += self._daemons(node, GPU_DAEMONS)
        for run in self.training:
            for pod in (run.head, *run.workers):
                pods[pod.node].append(pod)
        return {node: tuple(found) for node, found in pods.items()}

    @cached_property
    def teams(self) -> tuple[str, ...]:
        """Teams that have a run."""
        return tuple(f"team-{number}" for number in range(min(_TEAMS, self.runs)))

    @cached_property
    def training(self) -> tuple[Run, ...]:
        """The runs, over which all GPU nodes are divided evenly."""
        nodes = iter(self.gpu_nodes)
        return tuple(
            self._run(number, [next(nodes) for _ in range(workers)])
            for number, workers in enumerate(split(len(self.gpu_nodes), self.runs))
        )

    def _daemons(self, node: str, names: Sequence[str]) -> Iterator[Pod]:
        address = address_of(node)
        for name in names:
            yield Pod(namespace="gpu-system", name=f"{name}-{address.replace('.', '-')}", node=node, address=address)

    def _run(self, number: int, nodes: list[str]) -> Run:
        name, team = f"train-{number:05d}", self.teams[number % len(self.teams)]
        head = self.cpu_nodes[number % len(self.cpu_nodes)]
        return Run(
            name=name,
            team=team,
            head=Pod(namespace=team, name=f"{name}-head", node=head, address=_pod_address(number)),
            workers=tuple(
                Pod(namespace=team, name=f"{name}-gpu-worker-{rank}", node=node, address=address_of(node))
                for rank, node in enumerate(nodes)
            ),
            ranks=self.gpus * len(nodes),
            is_search=number % _SEARCH_SHARE == 0,
        )


def address_of(node: str) -> str:
    """The IPv4 address in a node's name."""
    return node.split(".", maxsplit=1)[0].removeprefix("ip-").replace("-", ".")


def _node(number: int) -> str:
    return f"ip-10-48-{number // 250}-{number % 250 + 1}.ec2.internal"


def _pod_address(number: int) -> str:
    return f"10.49.{number // 250}.{number % 250 + 1}"
