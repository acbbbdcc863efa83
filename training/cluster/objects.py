"""The Kubernetes objects of a job: their kinds and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest

RAY_JOB = ("ray.io/v1", "RayJob")
WORKLOAD = (KUEUE_API, "Workload")
CONFIG_MAP = ("v1", "ConfigMap")
POD = ("v1", "Pod")
EVENT = ("v1", "Event")

WORKER_CONTAINER = "ray-worker"
"""Container of a worker pod that the ranks run in; see `platform_charts.jobs.pods.worker`."""


def conditions(found: Manifest) -> Sequence[Manifest]:
    """The conditions of an object."""
    known: Sequence[Manifest] = (found.get("status") or {}).get("conditions", ())
    return known


def has_condition(found: Manifest, kind: str) -> bool:
    """Whether a condition of the object is true."""
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions(found))


def current_workload(workloads: Iterable[Manifest]) -> Manifest | None:
    """The Workload of a job that counts, of those that Kueue made for it; None if there is none.

    An elastic job has one for each size that it had or asks for: the newest that holds quota counts, or the newest that is not over.
    """

    def rank(workload: Manifest) -> tuple[bool, bool, str]:
        is_over = has_condition(workload, "Finished")
        created = str(workload["metadata"]["creationTimestamp"])
        return not is_over, has_condition(workload, "QuotaReserved"), created

    return max(workloads, key=rank, default=None)


def one_line(text: str, *, longest: int) -> str:
    """A message on one line, truncated to `longest` characters."""
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[:longest]} …"
