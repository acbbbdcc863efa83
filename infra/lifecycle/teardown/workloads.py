"""Deletes the teams' workloads before their cluster.

Their finalizers are removed by operators, which `pulumi destroy` deletes as well: a job that is left keeps its namespace, and
the namespace keeps the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.teardown.deletion import command_that_frees, delete_all, finalizers, is_deleted, lines_of, name_of
from infra.lifecycle.teardown.namespaces import Within, is_within
from infra.spec.cluster_names import KUBERAY_NAMESPACE, KUEUE_API, KUEUE_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest
from platform_charts.jobs.rayjob import QUEUE_LABEL
from platform_charts.jobs.schedule import SCHEDULE_LABEL

_KINDS = (
    ("batch/v1", "CronJob", SCHEDULE_LABEL),
    ("ray.io/v1", "RayJob", ""),
    ("ray.io/v1", "RayService", ""),
    ("ray.io/v1", "RayCluster", ""),
    ("batch/v1", "Job", QUEUE_LABEL),
    (KUEUE_API, "Workload", ""),
)
"""Group, kind and label of what is deleted: schedules first, which would submit more, and owners before what they own."""


class _Operator(NamedTuple):
    """A Deployment that removes finalizers."""

    namespace: str
    deployment: str


_OPERATORS: Mapping[str, _Operator] = {
    "ray.io": _Operator(KUBERAY_NAMESPACE, "kuberay-operator"),
    "kueue.x-k8s.io": _Operator(KUEUE_NAMESPACE, "kueue-controller-manager"),
}
"""The operator of each domain of finalizers; the names are those of the charts."""

_SECONDS = 300.0
_GRACE = timedelta(seconds=60)
"""How long an object waits for its operator before the operator is looked for."""


def find_workloads(api: KubernetesApi, *, within: Within = None) -> list[Manifest]:
    """Every schedule, job and Ray cluster, queued or running, with Kueue's objects for them.

    Args:
        api: the cluster's API server.
        within: where to look.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    found = [one for version, kind, label in _KINDS for one in api.items_if_served(version, kind, labels=label)]
    return [one for one in found if is_within(one["metadata"]["namespace"], within)]


def check_served(api: KubernetesApi) -> None:
    """Refuse a cluster with an API that another program should serve and does not: no namespace can be deleted then.

    Kubernetes deletes a namespace only once it has listed what is left in it in every API (namespaced_resources_deleter.go).

    Raises:
        RefusedError: names each API with the reason.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    unserved = {
        one["metadata"]["name"]: condition["message"]
        for one in api.items("apiregistration.k8s.io/v1", "APIService")
        for condition in one.get("status", {}).get("conditions", ())
        if condition["type"] == "Available" and condition["status"] != "True"
    }
    if unserved:
        lines = "".join(f"\n  {name}: {message}" for name, message in unserved.items())
        raise RefusedError(
            f"the cluster has APIs that nothing serves, and Kubernetes deletes no namespace until they answer:{lines}",
            remedy="repair the pods behind them; or, if they are gone for good: kubectl delete apiservice "
            + " ".join(unserved),
        )


def uses_of_others(api: KubernetesApi) -> Iterator[str]:
    """A line for each object of others that uses a flavor or topology of the stack: Kueue keeps what is used, and so does a destroy.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    queues, flavors, topologies = (
        api.items_if_served(KUEUE_API, kind) for kind in ("ClusterQueue", "ResourceFlavor", "Topology")
    )
    used = [
        *((one, flavor["name"], flavors) for one in queues for flavor in _flavors_of(one)),
        *((one, one["spec"].get("topologyName"), topologies) for one in flavors),
    ]
    for user, name, kind in used:
        ours = [one for one in kind if one["metadata"]["name"] == name and _is_ours(one)]
        if ours and not _is_ours(user):
            yield f"{name_of(user)} uses {name_of(ours[0])}"


def _flavors_of(queue: Manifest) -> Iterator[Manifest]:
    for group in queue["spec"].get("resourceGroups", ()):
        yield from group["flavors"]


def _is_ours(one: Manifest) -> bool:
    return bool(one["metadata"].get("labels", {}).get(PART_OF) == MANAGED_BY)


def check_unused(api: KubernetesApi) -> None:
    """Refuse a cluster where others use what the stack has of Kueue.

    Raises:
        RefusedError: names both.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    if found := list(uses_of_others(api)):
        lines = "".join(f"\n  {line}" for line in found)
        raise RefusedError(
            f"nothing was deleted: Kueue keeps what others use of the stack:{lines}",
            remedy="delete those objects, or let them use others, then repeat the command",
        )


def delete_workloads(
    api: KubernetesApi, *, say: Callable[[str], None], seconds: float = _SECONDS, within: Within = None
) -> None:
    """Delete every workload, and wait until the operators have let go of them.

    The finalizers of an operator that is not installed any more, as after an interrupted destroy, are removed in its place.

    Args:
        api: the cluster's API server.
        say: prints a line of progress.
        seconds: how long to wait.
        within: where to delete.

    Raises:
        RefusedError: some are left; names each with its finalizers.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    left = delete_all(
        api,
        lambda: find_workloads(api, within=within),
        what="schedules, jobs, Ray clusters and workloads",
        say=say,
        seconds=seconds,
        free=lambda found: _free(api, found, say=say),
    )
    if left:
        raise _refusal(left, seconds)


def _free(api: KubernetesApi, left: list[Manifest], *, say: Callable[[str], None]) -> None:
    """Remove the finalizers whose operator is not installed from objects that have waited for it."""
    waiting = [one for one in left if is_deleted(one) and finalizers(one) and _waited(one) > _GRACE]
    if not waiting:
        return
    absent = [domain for domain, operator in _OPERATORS.items() if _is_absent(api, operator)]
    for one in waiting:
        kept = [name for name in finalizers(one) if name.partition("/")[0] not in absent]
        if len(kept) == len(finalizers(one)):
            continue
        removed = ", ".join(name for name in finalizers(one) if name not in kept)
        say(f"{name_of(one)}: its operator is not installed; removing its finalizer {removed}")
        try:
            api.patch(one, {"metadata": {"finalizers": kept or None}})
        except ApiError as error:
            if error.code != 404:
                raise


def _waited(one: Manifest) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(one["metadata"]["deletionTimestamp"])


def _is_absent(api: KubernetesApi, operator: _Operator) -> bool:
    where = {"namespace": operator.namespace, "name": operator.deployment}
    return api.read({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": where}) is None


def _refusal(left: list[Manifest], seconds: float) -> RefusedError:
    return RefusedError(
        f"{len(left)} objects are still there {seconds:.0f} s after their deletion; the operators that remove their finalizers "
        f"do not:{lines_of(left)}",
        remedy=f"look at the operators (`kubectl -n {KUBERAY_NAMESPACE} get pods`, `kubectl -n {KUEUE_NAMESPACE} get pods`), and "
        f"repeat the command once they run. If they are gone for good, remove the finalizers: {command_that_frees(left[0])}",
    )
