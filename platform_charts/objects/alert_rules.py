"""Prometheus rules of the platform: GPU nodes that take no jobs, and logs that are not shipped.

The chart's own rules cover Kubernetes. Each alert says what to do; docs/DEPLOYMENT.md, "Node health", has the background.
"""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.node_labels import START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

_REPAIR_LIMIT = 0.2
"""Share of a node group's unhealthy nodes above which EKS repairs none, in groups of more than five (EKS user guide,
"Automatically repair nodes in EKS clusters"). The rule counts all GPU nodes."""

_UNHEALTHY = f'kube_node_spec_taint{{key="{UNHEALTHY_TAINT.key}"}}'
_GPU_NODES = 'kube_node_status_capacity{resource="nvidia_com_gpu"}'


def alert_rules(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """One PrometheusRule with the groups that concern the environment."""
    groups = [
        *([{"name": "gpu-nodes", "rules": _node_rules()}] if settings.gpu_groups else []),
        *([{"name": "logs", "rules": [_logs_rule()]}] if settings.logs.destination != "none" else []),
    ]
    if not groups:
        return ()
    return (
        api_object(
            "monitoring.coreos.com/v1",
            "PrometheusRule",
            "platform",
            namespace=MONITORING_NAMESPACE,
            labels=labels("monitoring", version=release.platform),
            spec={"groups": groups},
        ),
    )


def _node_rules() -> list[Manifest]:
    return [
        _rule(
            "GpuNodeUnhealthy",
            f"max by (node, value) ({_UNHEALTHY}) > 0",
            wait="5m",
            severity="warning",
            summary="Node {{ $labels.node }} takes no new jobs: {{ $labels.value }}.",
            action="EKS repairs it after 10 to 30 minutes where the group's `repair` is true. kubectl describe node shows why.",
        ),
        _rule(
            "GpuNodeNotRepaired",
            f"max by (node, value) ({_UNHEALTHY}) > 0",
            wait="1h",
            severity="critical",
            summary="Node {{ $labels.node }} has been unhealthy for an hour: {{ $labels.value }}.",
            action="Terminate the instance once no job runs on it; its group replaces it.",
        ),
        _rule(
            "GpuNodesUnhealthy",
            f"count({_UNHEALTHY}) / count({_GPU_NODES}) > {_REPAIR_LIMIT} and count({_GPU_NODES}) > 5",
            wait="5m",
            severity="critical",
            summary="{{ $value | humanizePercentage }} of the GPU nodes are unhealthy, so EKS may repair none.",
            action="Look for a common cause (driver, AMI, network) before replacing them.",
        ),
        _rule(
            "GpuNodeNotReady",
            f'max by (node) (kube_node_spec_taint{{key="{START_UP_TAINT.key}"}}) > 0',
            wait="30m",
            severity="warning",
            summary="Node {{ $labels.node }} has not become ready for jobs in 30 minutes.",
            action="The log of gpu-system/node-gate names what it waits for.",
        ),
    ]


def _logs_rule() -> Manifest:
    return _rule(
        "LogsNotShipped",
        "sum by (pod) (rate(fluentbit_output_retries_total[5m])) > 0",
        wait="30m",
        severity="warning",
        summary="{{ $labels.pod }} in gpu-system cannot deliver logs, and will drop the oldest once its buffer is full.",
        action="Its log names the error: permissions of the role, the log group, or Loki's address.",
    )


def _rule(alert: str, expression: str, *, wait: str, severity: str, summary: str, action: str) -> Manifest:
    annotations = {"summary": summary, "description": f"{summary} {action}"}
    return {
        "alert": alert,
        "expr": expression,
        "for": wait,
        "labels": {"severity": severity},
        "annotations": annotations,
    }
