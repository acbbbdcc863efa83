"""Deletes the teams' workloads before their cluster.

Their finalizers are removed by operators, which `pulumi destroy` deletes as well: a job that is left keeps its namespace, and
the namespace keeps the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from infra.kube.api import KubernetesApi
from infra.spec.cluster_names import KUBERAY_NAMESPACE, KUEUE_API, KUEUE_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
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

_SECONDS = 300.0
_POLL_SECONDS = 1.0
_REPORT_SECONDS = 15.0


def find_workloads(api: KubernetesApi) -> list[Manifest]:
    """Every schedule, job and Ray cluster of all namespaces, queued or running, with Kueue's objects for them.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return [one for version, kind, label in _KINDS for one in api.items_if_served(version, kind, labels=label)]


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


def describe(workloads: list[Manifest], *, at_most: int = 5) -> str:
    """Kinds and names, e.g. `RayJob research/digits, 3 more`."""
    named = [name_of(one) for one in workloads[:at_most]]
    return ", ".join([*named, *([f"{len(workloads) - at_most} more"] if len(workloads) > at_most else [])])


def name_of(one: Manifest) -> str:
    """Kind, namespace and name."""
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"


def delete_workloads(api: KubernetesApi, *, say: Callable[[str], None], seconds: float = _SECONDS) -> None:
    """Delete every workload, and wait until the operators have let go of them.

    Args:
        api: the cluster's API server.
        say: prints a line of progress.
        seconds: how long to wait.

    Raises:
        RefusedError: some are left; names each with its finalizers.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    began = reported = time.monotonic()
    before = 0
    while left := find_workloads(api):
        for one in left:
            # KubeRay and Kueue would create again what they own.
            if "deletionTimestamp" not in one["metadata"] and not one["metadata"].get("ownerReferences"):
                api.delete(one)
        now = time.monotonic()
        if now - began > seconds:
            raise _refusal(left, seconds)
        if len(left) != before or now - reported > _REPORT_SECONDS:
            say(f"deleting {len(left)} schedules, jobs, Ray clusters and workloads: {describe(left)}")
            before, reported = len(left), now
        time.sleep(_POLL_SECONDS)


def _refusal(left: list[Manifest], seconds: float) -> RefusedError:
    lines = "".join(
        f"\n  {name_of(one)}: finalizers {', '.join(one['metadata'].get('finalizers', ())) or 'none'}" for one in left
    )
    first = left[0]
    version = first["apiVersion"].partition("/")
    patch = f"{first['kind'].lower()}.{version[0]} {first['metadata']['name']}"
    return RefusedError(
        f"{len(left)} objects are still there {seconds:.0f} s after their deletion; the operators that remove their finalizers "
        f"do not:{lines}",
        remedy=f"look at the operators (`kubectl -n {KUBERAY_NAMESPACE} get pods`, `kubectl -n {KUEUE_NAMESPACE} get pods`), and "
        "repeat the command once they run. If they are gone for good, remove the finalizers: "
        f'kubectl -n {first["metadata"]["namespace"]} patch {patch} --type merge -p \'{{"metadata":{{"finalizers":null}}}}\'',
    )
