"""`python -m node_gate`: look at the nodes every few seconds, and open those that are complete.

It looks again instead of watching: a list of nodes is small, and there is no broken watch to recover from. An API
server that does not answer ends the program, and Kubernetes starts it again, later each time.
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

from .gate import Node, Promises, closed_nodes, opening

_CHANGED_MEANWHILE = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_FOUND)


class Nodes:
    """The nodes of a cluster.

    Args:
        api: client of its API server.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._core = client.CoreV1Api(api)

    def all(self) -> list[dict[str, Any]]:
        """Every node."""
        nodes: list[dict[str, Any]] = self._api.sanitize_for_serialization(self._core.list_node())["items"]
        return nodes

    def patch(self, name: str, patch: list[dict[str, Any]]) -> bool:
        """Apply a JSON patch; False where the node has changed or gone since it was read."""
        try:
            self._core.patch_node(name, patch, _content_type="application/json-patch+json")
        except ApiException as error:
            if error.status in _CHANGED_MEANWHILE:
                return False
            raise
        return True


def open_complete(nodes: Nodes, *, taint: str, group_label: str, promises: Promises) -> list[str]:
    """Open every closed node that is complete; returns a line for each closed node, in words."""
    found: dict[str, Node] = {node["metadata"]["name"]: node for node in nodes.all()}
    lines = []
    for closed in closed_nodes(list(found.values()), taint=taint, group_label=group_label, promises=promises):
        if closed.missing:
            lines.append(f"{closed.name}: waits for {', '.join(closed.missing)}")
        elif nodes.patch(closed.name, opening(found[closed.name], taint=taint)):
            lines.append(f"{closed.name}: open")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="python -m node_gate", description=__doc__)
    parser.add_argument("--taint", required=True, help="key of the taint")
    parser.add_argument("--group-label", required=True, help="label with the name of a node's group")
    parser.add_argument("--promises", required=True, type=json.loads, help="JSON: devices by resource, by group")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two looks")
    options = parser.parse_args(arguments)
    config.load_incluster_config()
    nodes, said = Nodes(client.ApiClient()), ""
    while True:
        lines = open_complete(nodes, taint=options.taint, group_label=options.group_label, promises=options.promises)
        if (now := "\n".join(lines)) != said:
            print(now or "no node waits", flush=True)
            said = now
        time.sleep(options.interval)


if __name__ == "__main__":
    main()
