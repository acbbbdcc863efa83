"""Rules about the traffic of pods: per pod, per job, and gradients that take the slow way.

The pods of a job have its label in Ray's metrics only, so `up` of their targets says which pods are a job's.
"""

from __future__ import annotations

from infra.spec.node_labels import EFA_RESOURCE
from observability.alerts.model import Alert, Group, Recording, Severity

TCP_BYTES_PER_SECOND = 250_000_000
"""2 Gbit/s over a quarter of an hour: more than logs, metrics and checkpoints, and what gradients at least need."""

_DIRECTIONS = ("receive", "transmit")
_OF_JOBS = 'max by (namespace, pod, training_job) (up{training_job!=""})'
_EFA = "".join(one if one.isalnum() else "_" for one in EFA_RESOURCE)


def _of_pod(direction: str) -> str:
    return f"pod:container_network_{direction}_bytes:rate5m"


def _pod_rate(direction: str) -> Recording:
    rate = f"rate(container_network_{direction}_bytes_total[5m])"
    return Recording(name=_of_pod(direction), expression=f"sum by (namespace, pod) ({rate})")


def _job_rate(direction: str) -> Recording:
    joined = f"{_of_pod(direction)} + on (namespace, pod) group_left (training_job) 0 * {_OF_JOBS}"
    return Recording(
        name=f"training_job:container_network_{direction}_bytes:rate5m",
        expression=f"sum by (namespace, training_job) ({joined})",
    )


NETWORK = Group(
    name="network",
    recordings=(*map(_pod_rate, _DIRECTIONS), *map(_job_rate, _DIRECTIONS)),
    alerts=(
        Alert(
            name="EfaFallback",
            expression=f"{_of_pod('transmit')} > {TCP_BYTES_PER_SECOND} and on (namespace, pod) "
            f'max by (namespace, pod) (kube_pod_container_resource_requests{{resource="{_EFA}"}}) > 0',
            wait="15m",
            severity=Severity.TICKET,
            summary="{{ $labels.namespace }}/{{ $labels.pod }} has EFA, and sends {{ $value | humanize }}B/s over TCP.",
            action="Run it with NCCL_DEBUG=INFO: its log should have `NET/OFI`, not `NET/Socket`, which is several times slower.",
        ),
    ),
)
"""In every environment."""
