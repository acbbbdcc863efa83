"""Priority classes: the platform's pods above training jobs, and training jobs by priority."""

from __future__ import annotations

from collections.abc import Mapping

from infra.spec.cluster_names import PLATFORM_PRIORITY, Priority, priority_class
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest

TRAINING: Mapping[Priority, int] = {"low": 1000, "normal": 2000, "high": 3000}
"""Value by job priority, for Kubernetes and Kueue."""

_PLATFORM_VALUE = 1_000_000


def priority_classes(release: ReleaseManifest) -> tuple[Manifest, ...]:
    """PriorityClasses.

    Training classes never preempt: the scheduler would evict single pods of running jobs, and losing one pod stops a
    data-parallel job. Kueue preempts whole jobs instead. The platform's own pods do preempt, because they share nodes
    with Ray heads, and jobs depend on MLflow and the operators.
    """
    training = (
        _priority_class(
            release,
            priority_class(priority),
            value,
            policy="Never",
            description=f"Training jobs of {priority} priority. Kueue preempts whole jobs; the scheduler takes no pods.",
        )
        for priority, value in TRAINING.items()
    )
    platform = _priority_class(
        release,
        PLATFORM_PRIORITY,
        _PLATFORM_VALUE,
        policy="PreemptLowerPriority",
        description="What every job depends on: operators, monitoring, MLflow.",
    )
    return (platform, *training)


def _priority_class(release: ReleaseManifest, name: str, value: int, *, policy: str, description: str) -> Manifest:
    return api_object(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        name,
        labels=labels("priorities", version=release.platform),
        value=value,
        globalDefault=False,
        preemptionPolicy=policy,
        description=description,
    )
