"""Which nodes may be opened, and how a node is told: pure functions of the nodes as the API shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Node = Mapping[str, Any]
"""A node as the API server sends it, in camelCase."""

Promises = Mapping[str, Mapping[str, int]]
"""Devices that a node of a group offers when it is complete: quantity by resource, by group."""


class Closed(NamedTuple):
    """A node that has the taint.

    Attributes:
        name: of the node.
        missing: what it does not offer yet, in words; empty when it may be opened.
    """

    name: str
    missing: tuple[str, ...]


def closed_nodes(nodes: Sequence[Node], *, taint: str, group_label: str, promises: Promises) -> Iterator[Closed]:
    """Nodes with the taint, and what each still lacks. A node of a group that nobody promised anything for lacks nothing.

    A node that offers more than promised is complete: time slices and MIG slices multiply its GPUs.

    Args:
        nodes: all nodes.
        taint: key of the taint.
        group_label: label with the name of a node's group.
        promises: what complete nodes offer.
    """
    for node in nodes:
        if any(one["key"] == taint for one in node["spec"].get("taints", ())):
            promised = promises.get(node["metadata"].get("labels", {}).get(group_label, ""), {})
            offered = node.get("status", {}).get("allocatable", {})
            missing = tuple(
                f"{resource} {offered.get(resource, '0')} of {quantity}"
                for resource, quantity in promised.items()
                if int(offered.get(resource, "0")) < quantity
            )
            yield Closed(node["metadata"]["name"], missing)


def opening(node: Node, *, taint: str) -> list[dict[str, Any]]:
    """The JSON patch (RFC 6902) that takes the taint away, and fails if anybody changed the node in the meantime."""
    taints = [one for one in node["spec"]["taints"] if one["key"] != taint]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/taints", "value": taints},
    ]
