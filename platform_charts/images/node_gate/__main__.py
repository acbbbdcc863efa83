"""`python -m node_gate`: list the nodes every few seconds, and remove the taint of those that are ready.

It polls, because a list of nodes is small, and a watch would need error recovery. An unavailable API server ends the
program, and Kubernetes restarts it with a backoff.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .gate import ExpectedDevices, Node, tainted_nodes, untaint_patch

_NODE_CHANGED = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_FOUND)


class Nodes:
    """The nodes of a cluster.

    Args:
        api: client of the API server.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._core = client.CoreV1Api(api)

    def list_all(self) -> list[dict[str, Any]]:
        """All nodes."""
        nodes: list[dict[str, Any]] = self._api.sanitize_for_serialization(self._core.list_node())["items"]
        return nodes

    def patch(self, name: str, patch: list[dict[str, Any]]) -> bool:
        """Apply a JSON patch; False if the node has changed or is gone since it was read."""
        try:
            self._core.patch_node(name, patch, _content_type="application/json-patch+json")
        except ApiException as error:
            if error.status in _NODE_CHANGED:
                return False
            raise
        return True


def untaint_ready_nodes(nodes: Nodes, *, taint: str, group_label: str, expected: ExpectedDevices) -> list[str]:
    """Remove the taint of every ready node; returns a log line for each tainted node."""
    by_name: dict[str, Node] = {node["metadata"]["name"]: node for node in nodes.list_all()}
    tainted = tainted_nodes(list(by_name.values()), taint=taint, group_label=group_label, expected=expected)
    lines = []
    for one in tainted:
        if one.missing:
            lines.append(f"{one.name}: waiting for {', '.join(one.missing)}")
        elif nodes.patch(one.name, untaint_patch(by_name[one.name], taint=taint)):
            lines.append(f"{one.name}: taint removed")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="python -m node_gate", description=__doc__)
    parser.add_argument("--taint", required=True, help="key of the taint")
    parser.add_argument("--group-label", required=True, help="label with the name of a node's group")
    parser.add_argument("--promises", required=True, type=json.loads, help="JSON: expected devices by group")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between polls")
    options = parser.parse_args(arguments)
    config.load_incluster_config()
    nodes, logged = Nodes(client.ApiClient()), ""
    while True:
        lines = untaint_ready_nodes(
            nodes, taint=options.taint, group_label=options.group_label, expected=options.promises
        )
        if (status := "\n".join(lines)) != logged:
            print(status or "no tainted nodes", flush=True)
            logged = status
        time.sleep(options.interval)


if __name__ == "__main__":
    main()
