"""Rules about jobs before they run: pending, without workers, waiting in a queue."""

from __future__ import annotations

from infra.spec.cluster_names import READY_TIMEOUT_MINUTES
from observability.alerts.expressions import COUNT, growth
from observability.alerts.model import Alert, Group, Severity

NOT_STARTED_MINUTES = READY_TIMEOUT_MINUTES - 10
"""Before Kueue evicts the job, while its pods still show what they wait for."""

NO_NODE_MINUTES = READY_TIMEOUT_MINUTES // 2
"""A new GPU node joins in less."""

LONG_WAIT_SECONDS = 10240
"""Almost three hours: a job that is submitted in the morning does not begin before noon. A bound of Kueue's buckets."""

EVICTIONS_PER_HOUR = 2
"""One may be a node that fails while it starts."""

_JOB = "namespace, name"
_JOB_TEXT = "{{ $labels.namespace }}/{{ $labels.name }}"
_STATE = "kuberay_job_deployment_status"
_PENDING = 'max by (cluster_queue) (kueue_pending_workloads{status="%s"})'
_ADMITTED = "sum by (cluster_queue) (increase(kueue_admitted_workloads_total[1h]))"
_NOT_READY = growth('kueue_evicted_workloads_total{reason="PodsReadyTimeout"}', by="cluster_queue", window="1h")
"""Each replica of Kueue exports the queues' gauges with its own role; only the leader counts admissions."""

QUEUE = Group(
    name="queue",
    alerts=(
        Alert(
            name="JobNotStarting",
            expression=f'max by ({_JOB}) ({_STATE}{{deployment_status="Initializing"}}) > 0',
            wait=f"{NOT_STARTED_MINUTES}m",
            severity=Severity.TICKET,
            is_state=True,
            summary=f"Job {_JOB_TEXT} was admitted {NOT_STARTED_MINUTES} minutes ago, and its cluster is not ready.",
            action="kubectl describe its pods: a missing node, an image that cannot be pulled, or a volume.",
        ),
        Alert(
            name="JobFailed",
            expression=f'max by ({_JOB}, deployment_status) ({_STATE}{{deployment_status=~"Failed|ValidationFailed"}}) > 0',
            wait="0m",
            severity=Severity.INFO,
            is_state=True,
            summary=f"Job {_JOB_TEXT} has ended as {{{{ $labels.deployment_status }}}}.",
            action="`make jobs` shows the reason, `make logs` the job's log.",
        ),
        Alert(
            name="WorkersMissing",
            expression=f'min by ({_JOB}) (kuberay_cluster_condition_provisioned{{condition="false"}}) '
            f"* on (namespace) group_left () count by (namespace) (kube_pod_status_unschedulable) > 0",
            wait=f"{NO_NODE_MINUTES}m",
            severity=Severity.TICKET,
            summary=f"Cluster {_JOB_TEXT} lacks workers; {COUNT} pods of its team fit on no node.",
            action="Look at the alert ScaleUpFails and at the group's max_size; AWS may have no capacity in its zones.",
        ),
        Alert(
            name="QueueStarved",
            expression=f"{_PENDING % 'active'} > 0 unless on (cluster_queue) {_ADMITTED} > 0",
            wait="6h",
            severity=Severity.TICKET,
            summary=f"{COUNT} jobs wait in queue {{{{ $labels.cluster_queue }}}}, and none was admitted for six hours.",
            action="See who holds the quota. A large job may wait for all of its GPUs while smaller ones keep taking them.",
        ),
        Alert(
            name="QueueWaitLong",
            expression="histogram_quantile(0.9, sum by (cluster_queue, le) "
            f"(rate(kueue_admission_wait_time_seconds_bucket[6h]))) > {LONG_WAIT_SECONDS}",
            wait="30m",
            severity=Severity.INFO,
            summary="A tenth of the jobs of queue {{ $labels.cluster_queue }} wait longer than {{ $value | humanizeDuration }}.",
            action="Compare the team's quota with its demand, and look for idle GPUs in other teams' quotas.",
        ),
        Alert(
            name="QueueInactive",
            expression='max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) < 1',
            wait="1h",
            severity=Severity.TICKET,
            is_state=True,
            summary="Queue {{ $labels.cluster_queue }} has admitted no jobs for an hour, because it is not active.",
            action="An update holds the queues while it replaces nodes. Otherwise describe the ClusterQueue: it names what is missing.",
        ),
        Alert(
            name="JobInadmissible",
            expression=f"{_PENDING % 'inadmissible'} > 0",
            wait="1d",
            severity=Severity.TICKET,
            summary=f"{COUNT} jobs of queue {{{{ $labels.cluster_queue }}}} could not be admitted for a day.",
            action="Describe their Workloads: most often they ask for more GPUs than the quota has.",
        ),
        Alert(
            name="JobsNotReadyInTime",
            expression=f"{_NOT_READY} > {EVICTIONS_PER_HOUR}",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} jobs of queue {{{{ $labels.cluster_queue }}}} lost their place within an hour: "
            "their pods did not become ready.",
            action="Look at the pods' events: capacity, images, volumes. Kueue retries with a growing delay.",
        ),
    ),
)
"""From submission to the first pod."""
