"""The Helm releases of an environment: chart, namespace and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import GPU_NAMESPACE, KUBERAY_NAMESPACE, KUEUE_NAMESPACE, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.monitoring_size import prometheus_memory_gib
from infra.spec.node_group import resolve_node_groups
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.alertmanager import alerting_of
from platform_charts.charts.cluster_autoscaler import ACCOUNT, autoscaler_values
from platform_charts.charts.crds import CRD_GROUPS
from platform_charts.charts.dcgm_exporter import exporter_values
from platform_charts.charts.efa_device_plugin import efa_plugin_values
from platform_charts.charts.fluent_bit import fluent_bit_values
from platform_charts.charts.image_names import ImageNames
from platform_charts.charts.kube_prometheus_stack import prometheus_stack_values
from platform_charts.charts.kuberay_operator import operator_values
from platform_charts.charts.kueue import kueue_values
from platform_charts.charts.nvidia_device_plugin import device_plugin_values

_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class ChartInstall:
    """One Helm release.

    Attributes:
        name: name of the release, and of the chart in the release manifest.
        namespace: namespace of the release, which the stack creates.
        values: the chart's values.
        timeout_s: seconds to wait for pods and hooks before Helm rolls the release back.
    """

    name: str
    namespace: str
    values: Manifest
    timeout_s: int = _TIMEOUT_S

    @property
    def skip_crds(self) -> bool:
        """Whether the stack applies the chart's CRDs."""
        return self.name in CRD_GROUPS


def installed_charts(settings: StackSettings) -> tuple[str, ...]:
    """Names of the charts of an environment."""
    gpu = ("nvidia-device-plugin", "dcgm-exporter") if settings.gpu_groups else ()
    efa = ("aws-efa-k8s-device-plugin",) if any(group.efa for group in settings.gpu_groups) else ()
    logs = ("fluent-bit",) if settings.logs.destination != "none" else ()
    return ("cluster-autoscaler", "kube-prometheus-stack", "kuberay-operator", "kueue", *logs, *gpu, *efa)


def chart_installs(
    settings: StackSettings,
    release: ReleaseManifest,
    catalog: Catalog,
    *,
    registry: str,
    alert_topic: str,
    caches: Mapping[str, str] | None = None,
) -> Mapping[str, ChartInstall]:
    """Every Helm release of an environment by name; they depend on CRDs and namespaces, not on each other.

    Args:
        settings: the environment.
        release: the pinned versions.
        catalog: the instance catalogue.
        registry: host of the stack's ECR and the prefix of its repositories.
        alert_topic: ARN of the alert topic; empty without one.
        caches: repository prefix of a pull-through cache by upstream registry; see `ImageNames`.
    """
    images = ImageNames(release, mirror=settings.mirrors.images, caches=caches)
    groups = settings.gpu_groups
    installs = [
        ChartInstall(
            name="cluster-autoscaler",
            namespace=ACCOUNT.namespace,
            values=autoscaler_values(settings, resolve_node_groups(settings, catalog=catalog), images),
        ),
        ChartInstall(
            name="kube-prometheus-stack",
            namespace=MONITORING_NAMESPACE,
            values=prometheus_stack_values(
                settings.monitoring,
                images,
                alerting_of(settings, release, topic_arn=alert_topic, registry=registry),
                memory_gib=prometheus_memory_gib(
                    settings.launch_requests(), catalog, chosen=settings.monitoring.memory_gib
                ),
                has_viewers=settings.has_grafana_viewers,
                is_shared=settings.cluster.is_shared,
            ),
            timeout_s=2 * _TIMEOUT_S,  # it provisions volumes and runs hooks in sequence
        ),
        ChartInstall(name="kuberay-operator", namespace=KUBERAY_NAMESPACE, values=operator_values(images)),
        ChartInstall(name="kueue", namespace=KUEUE_NAMESPACE, values=kueue_values(images)),
    ]
    if settings.logs.destination != "none":
        shipper = fluent_bit_values(settings, images)
        installs.append(ChartInstall(name="fluent-bit", namespace=GPU_NAMESPACE, values=shipper))
    if groups:
        plugin, exporter = device_plugin_values(groups, images), exporter_values(groups, catalog, images)
        installs += [
            ChartInstall(name="nvidia-device-plugin", namespace=GPU_NAMESPACE, values=plugin),
            ChartInstall(name="dcgm-exporter", namespace=GPU_NAMESPACE, values=exporter),
        ]
    if any(group.efa for group in groups):
        efa = efa_plugin_values(groups, images)
        installs.append(ChartInstall(name="aws-efa-k8s-device-plugin", namespace=GPU_NAMESPACE, values=efa))
    return {install.name: install for install in installs}
