"""`python -m node_gate`: list the nodes every few seconds, and taint and untaint them; and the flavors of groups without capacity.

It polls, because a list of nodes is small, and a watch would need error recovery. An unavailable API server ends the
program, and Kubernetes restarts it with a backoff.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .capacity import groups_in_backoff
from .capacity import patch_of as patch_of_flavor
from .health import Decision, Diagnosis, decide
from .objects import Group, Keys, diagnosis_of, facts_of, patch_of

_FLAVORS = ("kueue.x-k8s.io", "v1beta2", "resourceflavors")

_CHANGED = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_FOUND)

_LOST_PATCH = "has changed meanwhile; decided again at the next poll"


class Nodes:
    """The nodes of a cluster, and the pods of the diagnostics on them.

    Args:
        api: client of the API server.
        diagnostics: namespace and name of the DaemonSet of the diagnostics; None without one.
    """

    def __init__(self, api: client.ApiClient, *, diagnostics: tuple[str, str] | None = None) -> None:
        self._api = api
        self._core = client.CoreV1Api(api)
        self._diagnostics = diagnostics

    def list_all(self) -> list[dict[str, Any]]:
        """All nodes."""
        return self._items(self._core.list_node())

    def diagnoses(self) -> dict[str, Diagnosis]:
        """Outcome of the diagnostics by node."""
        if self._diagnostics is None:
            return {}
        namespace, name = self._diagnostics
        pods = self._items(self._core.list_namespaced_pod(namespace, label_selector=f"app.kubernetes.io/name={name}"))
        pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and "nodeName" in pod["spec"]]
        return {pod["spec"]["nodeName"]: diagnosis_of(pod) for pod in pods}

    def patch(self, name: str, patch: list[dict[str, Any]]) -> bool:
        """Apply a JSON patch; False if the node has changed or is gone since it was read."""
        try:
            self._core.patch_node(name, patch, _content_type="application/json-patch+json")
        except ApiException as error:
            if error.status in _CHANGED:
                return False
            raise
        return True

    def _items(self, answer: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a list model of the client
        items: list[dict[str, Any]] = self._api.sanitize_for_serialization(answer)["items"]
        return items


class Flavors:
    """Kueue's ResourceFlavors, and the autoscaler's status.

    Args:
        api: client of the API server.
        status: namespace and name of the ConfigMap that the autoscaler writes its status to.
    """

    def __init__(self, api: client.ApiClient, *, status: tuple[str, str]) -> None:
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._status = status

    def status(self) -> str:
        """The autoscaler's status; empty before its first loop."""
        namespace, name = self._status
        try:
            return str((self._core.read_namespaced_config_map(name, namespace).data or {}).get("status", ""))
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ""
            raise

    def find(self, name: str) -> dict[str, Any] | None:
        """The flavor of a group; None before it is created."""
        try:
            found: dict[str, Any] = self._custom.get_cluster_custom_object(*_FLAVORS, name)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        """Apply a merge patch, unless the flavor has changed or is gone since it was read."""
        try:
            self._custom.patch_cluster_custom_object(
                *_FLAVORS, name, patch, _content_type="application/merge-patch+json"
            )
        except ApiException as error:
            # Kueue's webhook answers 500 while it restarts, which must not keep nodes out of service.
            if error.status not in _CHANGED and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise


def check_capacity(
    flavors: Flavors, *, taint: Mapping[str, str], groups: Mapping[str, Group], hold: timedelta, now: datetime
) -> list[str]:
    """Close the flavors of groups without capacity, and open those whose time is over; returns a log line per closed flavor."""
    parts = {name: group.parts for name, group in groups.items() if group.parts}
    failing, lines = groups_in_backoff(flavors.status(), parts, now=now), []
    for name in parts:
        flavor = flavors.find(name)
        if flavor is None:
            continue
        patch = patch_of_flavor(flavor, is_failing=name in failing, now=now, hold=hold, taint=taint)
        if patch is not None:
            flavors.patch(name, patch)
            flavor = flavor | {"spec": patch["spec"]}
        if any(one["key"] == taint["key"] for one in flavor["spec"].get("nodeTaints", ())):
            lines.append(f"group {name}: AWS has no capacity; jobs with a choice use other groups")
    return lines


def check_nodes(nodes: Nodes, *, keys: Keys, groups: Mapping[str, Group]) -> list[str]:
    """Decide about every node, and put the decisions into effect; returns a log line for each node that is not in service.

    Nodes of other groups only lose the start-up taint.
    """
    diagnoses, lines = nodes.diagnoses(), []
    for node in nodes.list_all():
        name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
        group = groups.get(labels.get(keys.group_label, ""))
        decision = decide(facts_of(node, group, keys, diagnoses.get(name))) if group else Decision(state="healthy")
        patch = patch_of(node, decision, keys)
        if patch and not nodes.patch(name, patch):
            lines.append(f"{name}: {_LOST_PATCH}")
        elif patch or decision.state != "healthy":
            lines.append(f"{name}: {_describe(decision)}")
    return lines


def _describe(decision: Decision) -> str:
    details = ", ".join(decision.details)
    match decision.state:
        case "healthy":
            return "taint removed"
        case "starting":
            return f"waiting for {details}"
        case "unhealthy":
            return f"unhealthy ({decision.reason}): {details}"


def _groups(text: str) -> dict[str, Group]:
    return {name: Group(**fields) for name, fields in json.loads(text).items()}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m node_gate", description=__doc__)
    made.add_argument("--start-up-taint", required=True, help="key of the taint of new nodes")
    made.add_argument("--unhealthy-taint", required=True, help="key of the taint of sick nodes")
    made.add_argument("--group-label", required=True, help="label with the name of a node's group")
    made.add_argument("--diagnose-label", required=True, help="label of nodes that the diagnostics have to run on")
    made.add_argument("--no-capacity-taint", required=True, help="key of the taint of flavors without capacity")
    made.add_argument("--groups", required=True, type=_groups, help="JSON: devices, is_diagnosed and parts by group")
    made.add_argument(
        "--autoscaler-status", required=True, nargs=2, metavar=("NAMESPACE", "NAME"), help="the autoscaler's ConfigMap"
    )
    made.add_argument("--hold-minutes", type=float, required=True, help="how long a flavor stays closed")
    made.add_argument("--diagnostics", nargs=2, metavar=("NAMESPACE", "NAME"), help="the DaemonSet; without: none")
    made.add_argument("--interval", type=float, default=5.0, help="seconds between polls")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    options = parser().parse_args(arguments)
    config.load_incluster_config()
    keys = Keys(options.start_up_taint, options.unhealthy_taint, options.group_label, options.diagnose_label)
    diagnostics = tuple(options.diagnostics) if options.diagnostics else None
    nodes, logged = Nodes(client.ApiClient(), diagnostics=diagnostics), ""
    flavors, hold = Flavors(client.ApiClient(), status=tuple(options.autoscaler_status)), options.hold_minutes
    taint = {"key": options.no_capacity_taint, "value": "true", "effect": "NoSchedule"}
    while True:
        lines = [
            *check_nodes(nodes, keys=keys, groups=options.groups),
            *check_capacity(
                flavors, taint=taint, groups=options.groups, hold=timedelta(minutes=hold), now=datetime.now(UTC)
            ),
        ]
        if (status := "\n".join(lines)) != logged:
            print(status or "all nodes are in service, and all groups have capacity", flush=True)
            logged = status
        time.sleep(options.interval)


if __name__ == "__main__":
    main()
