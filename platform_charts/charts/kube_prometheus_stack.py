"""Values of kube-prometheus-stack: Prometheus, Alertmanager, Grafana and the exporters every node has."""

from __future__ import annotations

from infra.spec.cluster_names import GP3_CLASS, GPU_NAMESPACE, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.settings.platform import MonitoringSettings
from platform_charts.charts.alertmanager import Alerting, alertmanager_config, webhook_pod
from platform_charts.charts.image_names import ImageNames
from platform_charts.placement import SYSTEM_NODES, resources, tolerations

ALERTMANAGER_ACCOUNT = PLATFORM_ACCOUNTS["monitoring"][0]
"""The service account that may publish to the topic and read the webhook's secret."""

_FILLED_PERCENT = 85
"""Share of its volume that Prometheus fills with blocks; the write-ahead log and compaction need the rest."""

_ALERTMANAGER_GIB = 2


def prometheus_stack_values(monitoring: MonitoringSettings, images: ImageNames, alerting: Alerting) -> Manifest:
    """Values of the chart."""
    return {
        "crds": {"enabled": False},  # the stack applies them, and upgrades them
        "fullnameOverride": "kube-prometheus-stack",
        "prometheus": _prometheus(monitoring, images, environment=alerting.environment),
        "alertmanager": _alertmanager(images, alerting),
        "prometheusOperator": _operator(images),
        "grafana": _grafana(images),
        "kube-state-metrics": {
            "image": images["kube-state-metrics"].registry_and_repository(has_algorithm=True),
            "nodeSelector": SYSTEM_NODES,
            "resources": resources(cpu="50m", memory="256Mi"),
        },
        "prometheus-node-exporter": {
            # The tag says which variant it is; the chart would say so a second time.
            "image": images["node-exporter"].registry_and_repository("digest", has_algorithm=True)
            | {"distroless": False},
            # It reads the host's /proc, which the level of Pod Security in Prometheus's own namespace forbids.
            "namespaceOverride": GPU_NAMESPACE,
            "tolerations": tolerations(),
            "resources": resources(cpu="50m", memory="64Mi"),
        },
        # EKS runs these, and lets nobody look.
        "kubeControllerManager": {"enabled": False},
        "kubeEtcd": {"enabled": False},
        "kubeScheduler": {"enabled": False},
        # kube-proxy of EKS serves its metrics on the node's loopback only.
        "kubeProxy": {"enabled": False},
    }


def _prometheus(monitoring: MonitoringSettings, images: ImageNames, *, environment: str) -> Manifest:
    filled = monitoring.storage_gib * _FILLED_PERCENT // 100
    # What a monitor selects is the stack's own; without this the chart's Prometheus sees the chart's monitors only.
    selectors = ("rule", "serviceMonitor", "podMonitor", "probe", "scrapeConfig")
    return {
        "prometheusSpec": {
            "image": images["prometheus"].registry_and_repository(),
            "externalLabels": {"environment": environment},
            "retention": f"{monitoring.retention_days}d",
            "retentionSize": f"{filled}GiB",
            "walCompression": True,
            "storageSpec": _volume(monitoring.storage_gib),
            "nodeSelector": SYSTEM_NODES,
            "resources": resources(cpu="500m", memory="4Gi"),
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
            "resources": resources(cpu="20m", memory="128Mi"),
            **webhook_pod(alerting),
        },
    }


def _operator(images: ImageNames) -> Manifest:
    reloader = images["prometheus-config-reloader"].registry_and_repository()
    return {
        "image": images["prometheus-operator"].registry_and_repository(),
        "prometheusConfigReloader": {"image": reloader, "resources": resources(cpu="10m", memory="64Mi")},
        "admissionWebhooks": {
            "patch": {
                "image": images["kube-webhook-certgen"].registry_and_repository(),
                "nodeSelector": SYSTEM_NODES,
                "resources": resources(cpu="10m", memory="64Mi"),
            }
        },
        "nodeSelector": SYSTEM_NODES,
        "resources": resources(cpu="100m", memory="256Mi"),
    }


def _grafana(images: ImageNames) -> Manifest:
    """Grafana for people with a port forward; its boards are ConfigMaps, so it keeps nothing of its own.

    The password of `admin` is made by the chart at the first installation, and kept in its Secret from then on.
    """
    return {
        "image": images["grafana"].registry_and_repository(),
        "nodeSelector": SYSTEM_NODES,
        "resources": resources(cpu="100m", memory="512Mi"),
        "rbac": {"namespaced": True},
        "testFramework": {"enabled": False},
        "sidecar": {
            "image": images["k8s-sidecar"].registry_and_repository(),
            "resources": resources(cpu="10m", memory="128Mi"),
            "dashboards": {"enabled": True, "searchNamespace": MONITORING_NAMESPACE},
            "datasources": {"searchNamespace": MONITORING_NAMESPACE},
        },
        "grafana.ini": {
            "analytics": {"reporting_enabled": False, "check_for_updates": False, "check_for_plugin_updates": False},
            "auth.anonymous": {"enabled": False},
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
