"""Which tainted nodes are ready, and the patch that removes their taint; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Node = Mapping[str, Any]
"""A node as JSON from the API server."""

ExpectedDevices = Mapping[str, Mapping[str, int]]
"""Number of allocatable devices of a ready node, by resource by group."""


class TaintedNode(NamedTuple):
    """A node with the taint.

    Attributes:
        name: name of the node.
        missing: descriptions of missing devices; empty for a ready node.
    """

    name: str
    missing: tuple[str, ...]


def tainted_nodes(
    nodes: Sequence[Node], *, taint: str, group_label: str, expected: ExpectedDevices
) -> Iterator[TaintedNode]:
    """Nodes with the taint and their missing devices; a node of an unknown group lacks none.

    A node may have more devices than expected, because time slices and MIG slices multiply its GPUs.

    Args:
        nodes: all nodes.
        taint: key of the taint.
        group_label: label with the name of a node's group.
        expected: devices of ready nodes, by group.
    """
    for node in nodes:
        if any(one["key"] == taint for one in node["spec"].get("taints", ())):
            devices = expected.get(node["metadata"].get("labels", {}).get(group_label, ""), {})
            allocatable = node.get("status", {}).get("allocatable", {})
            missing = tuple(
                f"{resource} {allocatable.get(resource, '0')} of {quantity}"
                for resource, quantity in devices.items()
                if int(allocatable.get(resource, "0")) < quantity
            )
            yield TaintedNode(node["metadata"]["name"], missing)


def untaint_patch(node: Node, *, taint: str) -> list[dict[str, Any]]:
    """JSON patch (RFC 6902) that removes the taint, and fails if the node has changed since it was read."""
    taints = [one for one in node["spec"]["taints"] if one["key"] != taint]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/taints", "value": taints},
    ]
