"""Which nodes of an environment are real: the option `--real` of `sandbox`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from infra.lifecycle.sandbox.nodes import node_labels
from infra.spec.catalog import Catalog
from infra.spec.errors import SettingsError
from infra.spec.node_group import NodeGroup, NodeGroups, resolve_node_groups
from infra.spec.node_labels import FAKE_DEVICES_LABEL
from infra.spec.settings.network import subnets_of
from infra.spec.settings.stack import StackSettings

DEFAULT = "1"
"""`--real 1`: one node of every group that a job needs, see `requested`."""

MOST_NODES = 20
"""Real nodes at most; each has a containerd and a kubelet of its own, about 200 MB of memory."""


@dataclass(frozen=True, kw_only=True)
class RealNode:
    """A node that runs pods.

    Attributes:
        name: name of the node, e.g. `a10g-0`; a fake node of that name is left out.
        labels: labels that the kubelet registers it with.
        taints: taints that the kubelet registers it with.
        resources: allocatable CPU, memory and storage of the group's instance type, as Kubernetes quantities. The API server has
            them instead of those of this machine, see `objects.capacity_policy`.
        devices: number of devices by resource, which a device plugin advertises without having them.
        max_pods: the kubelet's maxPods.
        subnets: private subnets of the environment, in which nodes, pods, API server and database have their addresses on EKS.
        api_service: cluster IP of the API server's Service on EKS.
    """

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    resources: Mapping[str, str]
    devices: Mapping[str, int]
    max_pods: int
    subnets: Sequence[str]
    api_service: str


def requested(words: Sequence[str], settings: StackSettings, *, catalog: Catalog) -> tuple[RealNode, ...]:
    """The real nodes that the words of `--real` ask for.

    Args:
        words: `GROUP=COUNT` for each group; or `1`: one node of the groups without GPUs and of the first GPU group, which is all that
            a job needs.
        settings: the environment.
        catalog: the instance types.

    Raises:
        SettingsError: an unknown group, or a number that the group cannot have.
    """
    groups = resolve_node_groups(settings, catalog=catalog)
    if list(words) == [DEFAULT]:
        counts = {group.name: 1 for group in (groups.system, groups.heads, *groups.gpu[:1])}
    else:
        counts = dict(_count(word, groups) for word in words)
    if sum(counts.values()) > MOST_NODES:
        raise SettingsError(f"--real asks for {sum(counts.values())} nodes; at most {MOST_NODES} can be real")
    return tuple(
        _real_node(group, number, settings) for group in groups.all() for number in range(counts.get(group.name, 0))
    )


def dump(nodes: Sequence[RealNode]) -> str:
    """Nodes as text for another process; see `load`."""
    return json.dumps([asdict(node) for node in nodes])


def load(text: str) -> tuple[RealNode, ...]:
    """Nodes of another process; none if the text is empty."""
    return tuple(RealNode(**fields) for fields in json.loads(text or "[]"))


def _count(word: str, groups: NodeGroups) -> tuple[str, int]:
    name, _, number = word.partition("=")
    known = {group.name: group for group in groups.all()}
    if name not in known:
        raise SettingsError(
            f"--real {word}: no node group {name!r}",
            remedy=f"write GROUP=COUNT with one of {', '.join(known)}, or 1 for one node of each group that a job needs",
        )
    most = known[name].max_size
    if not number.isdecimal() or not 1 <= int(number) <= most:
        raise SettingsError(
            f"--real {word}: {number or 'nothing'} is not a number of nodes from 1 to {most}, the group's max_size",
            remedy=f"write {name}=1, or raise max_size of the group in the environment's file",
        )
    return name, int(number)


def _real_node(group: NodeGroup, number: int, settings: StackSettings) -> RealNode:
    labels = node_labels(group, number, region=settings.aws.region)
    if group.expected_devices:
        labels[FAKE_DEVICES_LABEL] = "true"
    resources = {
        name: amount for name, amount in group.allocatable.items() if name not in {*group.expected_devices, "pods"}
    }
    return RealNode(
        name=f"{group.name}-{number}",
        # The kubelet sets operating system, architecture and host name itself, as they are.
        labels={key: value for key, value in labels.items() if not key.startswith("kubernetes.io/")},
        taints=[
            {key: value for key, value in taint.model_dump().items() if value is not None} for taint in group.taints
        ],
        resources=resources,
        devices=group.expected_devices,
        max_pods=group.max_pods,
        subnets=[str(subnet) for subnet in subnets_of(settings.network).private],
        api_service=str(settings.network.service_cidr[1]),
    )
