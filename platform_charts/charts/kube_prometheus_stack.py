"""Values of kube-prometheus-stack: Prometheus, Alertmanager, Grafana and the exporters."""

from __future__ import annotations

from infra.spec.cluster_names import DASHBOARD_FOLDER, GP3_CLASS, GPU_NAMESPACE, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.node_labels import GROUP_LABEL, INSTANCE_TYPE_LABEL
from infra.spec.settings.platform import MonitoringSettings
from platform_charts.charts.alertmanager import Alerting, alertmanager_config, webhook_pod_fields
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS, prometheus_resources
from platform_charts.placement import SYSTEM_NODES, daemon_affinity, tolerations

ALERTMANAGER_ACCOUNT = PLATFORM_ACCOUNTS["monitoring"][0]
"""Service account with the monitoring role, which may publish to the topic and read the webhook's secret."""

_RETENTION_PERCENT = 85
"""Share of its volume for Prometheus's blocks; the write-ahead log and compaction need the rest."""

_ALERTMANAGER_GIB = 2


def prometheus_stack_values(
    monitoring: MonitoringSettings,
    images: ImageNames,
    alerting: Alerting,
    *,
    memory_gib: int,
    has_viewers: bool,
    is_shared: bool,
) -> Manifest:
    """Values of the chart.

    Args:
        monitoring: the settings of monitoring.
        images: the images.
        alerting: where alerts go.
        memory_gib: memory of Prometheus in GiB.
        has_viewers: whether Grafana shows its dashboards without a login.
        is_shared: whether others use the cluster too.
    """
    return {
        "crds": {"enabled": False},  # the stack applies and upgrades them
        "fullnameOverride": "kube-prometheus-stack",
        "prometheus": _prometheus(monitoring, images, environment=alerting.environment, memory_gib=memory_gib),
        "alertmanager": _alertmanager(images, alerting),
        "prometheusOperator": _operator(images),
        "grafana": _grafana(images, has_viewers=has_viewers),
        "kube-state-metrics": {
            "image": images["kube-state-metrics"].registry_and_repository(has_algorithm=True),
            "nodeSelector": SYSTEM_NODES,
            "resources": CONTAINERS["kube-state-metrics"].manifest(),
            # By default it exports no labels; the price of a node is found by these.
            "metricLabelsAllowlist": [f"nodes=[{GROUP_LABEL},{INSTANCE_TYPE_LABEL}]"],
        },
        "prometheus-node-exporter": {
            # The tag has the variant's suffix already; the chart would append it again.
            "image": images["node-exporter"].registry_and_repository("digest", has_algorithm=True)
            | {"distroless": False},
            # It mounts the host's /proc, which Prometheus's namespace forbids by its Pod Security level.
            "namespaceOverride": GPU_NAMESPACE,
            "tolerations": tolerations(),
            **daemon_affinity(is_shared=is_shared),
            "resources": CONTAINERS["node-exporter"].manifest(),
        },
        # EKS runs these and does not expose their metrics.
        "kubeControllerManager": {"enabled": False},
        "kubeEtcd": {"enabled": False},
        "kubeScheduler": {"enabled": False},
        # EKS's kube-proxy serves its metrics on the node's loopback interface only.
        "kubeProxy": {"enabled": False},
    }


def _prometheus(monitoring: MonitoringSettings, images: ImageNames, *, environment: str, memory_gib: int) -> Manifest:
    retention_gib = monitoring.storage_gib * _RETENTION_PERCENT // 100
    # By default the chart's Prometheus selects only the chart's own rules and monitors.
    selectors = ("rule", "serviceMonitor", "podMonitor", "probe", "scrapeConfig")
    return {
        "prometheusSpec": {
            "image": images["prometheus"].registry_and_repository(),
            "externalLabels": {"environment": environment},
            "retention": f"{monitoring.retention_days}d",
            "retentionSize": f"{retention_gib}GiB",
            "walCompression": True,
            "storageSpec": _volume(monitoring.storage_gib),
            "nodeSelector": SYSTEM_NODES,
            "resources": prometheus_resources(memory_gib).manifest(),
            **{f"{selector}SelectorNilUsesHelmValues": False for selector in selectors},
        }
    }


def _alertmanager(images: ImageNames, alerting: Alerting) -> Manifest:
    return {
        "config": alertmanager_config(alerting),
        "serviceAccount": {"create": True, "name": ALERTMANAGER_ACCOUNT.name},
        "alertmanagerSpec": {
            "image": images["alertmanager"].registry_and_repository(),
            "storage": _volume(_ALERTMANAGER_GIB),
            "nodeSelector": SYSTEM_NODES,
            "resources": CONTAINERS["alertmanager"].manifest(),
            **webhook_pod_fields(alerting),
        },
    }


def _operator(images: ImageNames) -> Manifest:
    reloader = images["prometheus-config-reloader"].registry_and_repository()
    return {
        "image": images["prometheus-operator"].registry_and_repository(),
        "prometheusConfigReloader": {
            "image": reloader,
            "resources": CONTAINERS["prometheus-config-reloader"].manifest(),
        },
        "admissionWebhooks": {
            "patch": {
                "image": images["kube-webhook-certgen"].registry_and_repository(),
                "nodeSelector": SYSTEM_NODES,
                "resources": CONTAINERS["kube-webhook-certgen"].manifest(),
            }
        },
        "nodeSelector": SYSTEM_NODES,
        "resources": CONTAINERS["prometheus-operator"].manifest(),
    }


def _grafana(images: ImageNames, *, has_viewers: bool) -> Manifest:
    """Grafana, reached by port forwarding or single sign-on; its dashboards are ConfigMaps, so it needs no storage.

    The chart generates the `admin` password at the first installation and keeps it in its Secret. Viewers have no accounts: they
    would be lost with each of its pods, and a viewer sees what every other one sees. Policies decide who reaches it.
    """
    # Grafana passes requests on to its data sources, and a viewer's, too. Prometheus's API only reads; Alertmanager's does not.
    sources = {"alertmanager": {"enabled": False}} if has_viewers else {}
    return {
        "image": images["grafana"].registry_and_repository(),
        "nodeSelector": SYSTEM_NODES,
        "resources": CONTAINERS["grafana"].manifest(),
        "rbac": {"namespaced": True},
        "testFramework": {"enabled": False},
        "sidecar": {
            "image": images["k8s-sidecar"].registry_and_repository(),
            "resources": CONTAINERS["grafana-sidecar"].manifest(),
            "dashboards": {
                "enabled": True,
                "searchNamespace": MONITORING_NAMESPACE,
                # Ours are in a folder of their own, beside the chart's.
                "folderAnnotation": DASHBOARD_FOLDER,
                "provider": {"foldersFromFilesStructure": True},
            },
            "datasources": {"searchNamespace": MONITORING_NAMESPACE, **sources},
        },
        "grafana.ini": {
            "analytics": {"reporting_enabled": False, "check_for_updates": False, "check_for_plugin_updates": False},
            "auth.anonymous": {"enabled": True, "org_role": "Viewer", "hide_version": True}
            if has_viewers
            else {"enabled": False},
            "security": {"disable_gravatar": True, "cookie_samesite": "strict", "strict_transport_security": False},
            "snapshots": {"external_enabled": False},
            "users": {"allow_sign_up": False, "viewers_can_edit": False},
        },
    }


def _volume(gib: int) -> Manifest:
    spec = {
        "storageClassName": GP3_CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }
    return {"volumeClaimTemplate": {"spec": spec}}
