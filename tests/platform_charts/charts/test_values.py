"""Values of every chart in every environment: scheduling, permissions and images."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import BALANCED_LABEL, GPU_TAINT, SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from infra.spec.sharing import DEVICE_PLUGIN_CONFIG_LABEL, sharing_labels
from platform_charts.charts.image_names import ImageNames, images_of, without_digest
from platform_charts.charts.installs import installed_charts
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.infra.spec.samples import SINGLE_SIGN_ON, dev_sections
from tests.platform_charts.charts.releases import FULL_REFERENCE, installs_of, named_images, with_digests
from tests.platform_charts.objects.samples import objects_of, varied

GPU_CHARTS = {"nvidia-device-plugin", "dcgm-exporter", "aws-efa-k8s-device-plugin"}


def values(chart: str, **changes: object) -> Manifest:
    """Values of a chart in the sample environment, with values at dotted paths replaced."""
    settings = varied({path.replace("__", "."): value for path, value in changes.items()})
    return installs_of(settings)[chart].values


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_chart_is_pinned_in_a_namespace_of_the_stack_and_its_images_have_registry_and_digest(
    environment: str,
) -> None:
    settings, charts = settings_of(environment), load_release().charts
    installs = installs_of(settings, with_digests())
    assert tuple(installs) == installed_charts(settings)
    created = {one["metadata"]["name"] for one in objects_of(environment)["namespaces"]} | {"kube-system"}
    for name, install in installs.items():
        assert charts[name].version is not None, name
        assert install.namespace in created, name
        images = list(named_images(install.values))
        assert images, f"{name} has no image"
        assert [image for image in images if "@sha256:" not in image] == []
        references = [*images, *images_of([install.values])]
        assert [one for one in references if not FULL_REFERENCE.fullmatch(one)] == []


def test_a_mirror_changes_only_the_registry_of_images() -> None:
    settings, release = settings_of("prod"), with_digests()
    mirrors = settings.mirrors.model_copy(update={"images": "registry.internal:5000/mirror"})
    mirrored = installs_of(settings.model_copy(update={"mirrors": mirrors}), release)
    for name, install in installs_of(settings, release).items():
        expected = [f"registry.internal:5000/mirror/{image}" for image in named_images(install.values)]
        assert list(named_images(mirrored[name].values)) == expected


def test_only_cached_registries_are_pulled_through_ecr_and_a_mirror_takes_precedence() -> None:
    caches = {"quay.io": "1.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/quay"}
    installs = installs_of(varied({}), caches=caches)
    assert list(named_images(installs["kuberay-operator"].values)) == [
        "1.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/quay/kuberay/operator:v1.6.2"
    ]
    assert next(named_images(installs["kueue"].values)).startswith("registry.k8s.io/")
    images = ImageNames(load_release(), mirror="mirror", caches={"quay.io": "cache"})
    assert images["kuberay-operator"].name == "mirror/quay.io/kuberay/operator"
    with pytest.raises(ValueError, match="trainer is an image of ours"):
        images["trainer"]


def test_an_invalid_mirror_is_rejected() -> None:
    assert varied({"mirrors": {"charts": "oci://mirror/charts"}}).mirrors.charts == "oci://mirror/charts"
    for setting, value in (
        *(("images", value) for value in ("https://mirror", "mirror/", "Mirror", "mirror/a b")),
        ("charts", "http://mirror"),
    ):
        with pytest.raises(SettingsError, match=rf"mirrors\.{setting}"):
            varied({"mirrors": {setting: value}})


def test_images_are_found_in_pods_templates_custom_resources_and_arguments() -> None:
    pod = {"initContainers": [{"image": "a:1"}], "containers": [{"image": "b@sha256:1"}]}
    manifests: list[Manifest] = [
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}},
        {"kind": "Prometheus", "spec": {"image": "c:1"}},
        {"kind": "Pod", "spec": {"containers": [{"args": ["--prometheus-config-reloader=d:1", "--other=e:1"]}]}},
    ]
    assert list(images_of(manifests)) == ["a:1", "b@sha256:1", "c:1", "d:1"]
    assert without_digest(manifests) == ("a:1", "c:1", "d:1")


def test_gpu_daemons_tolerate_only_the_taints_of_gpu_nodes() -> None:
    expected: list[tuple[str, str | None, str]] = [
        (taint.key, taint.value, taint.effect) for taint in (GPU_TAINT, SPOT_TAINT, START_UP_TAINT)
    ]
    expected.append((UNHEALTHY_TAINT.key, None, UNHEALTHY_TAINT.effect))
    for chart in GPU_CHARTS:
        found = [(one["key"], one.get("value"), one["effect"]) for one in values(chart)["tolerations"]]
        assert found == expected, chart


def test_gpu_charts_are_installed_for_gpu_groups_and_the_efa_plugin_for_instance_types_with_efa_only() -> None:
    assert GPU_CHARTS & set(installs_of(varied({"gpu_groups": [], "teams.0.gpus": {}}))) == set()
    assert "aws-efa-k8s-device-plugin" not in installs_of(varied({"gpu_groups.1.efa": False}))
    assert values("aws-efa-k8s-device-plugin")["supportedInstanceLabels"]["values"] == ["p5.48xlarge"]


def test_the_dcgm_exporters_memory_follows_the_largest_node_and_its_metrics_name_their_node() -> None:
    exporter = values("dcgm-exporter")
    assert exporter["resources"]["limits"]["memory"] == f"{load_catalog().dcgm_memory_mib(8)}Mi"
    # Rules join them with the metrics of nodes.
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    assert exporter["serviceMonitor"]["relabelings"] == [node]


def plugin_configs(**changes: object) -> dict[str, Any]:
    found = values("nvidia-device-plugin", **changes)["config"]["map"]
    return {name: yaml.safe_load(text) for name, text in found.items()}


def test_gpus_are_shared_only_by_the_groups_that_say_so() -> None:
    whole = {"version": "v1", "flags": {"failOnInitError": True, "migStrategy": "none"}}
    assert plugin_configs() == {"whole": whole}
    assert values("nvidia-device-plugin")["config"]["default"] == "whole"
    assert sharing_labels(varied({}).gpu_groups[0].sharing) == {}
    configs = plugin_configs(gpu_groups__0__sharing={"time_slices": 4})
    group = varied({"gpu_groups.0.sharing": {"time_slices": 4}}).gpu_groups[0]
    config = configs[sharing_labels(group.sharing)[DEVICE_PLUGIN_CONFIG_LABEL]]
    assert config["sharing"]["timeSlicing"] == {
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }
    assert set(configs) == {"whole", "time-slices-4"}
    configs = plugin_configs(gpu_groups__1__sharing={"mig_profile": "1g.10gb"}, gpu_groups__1__efa=False)
    assert configs["mig-1g.10gb"]["flags"]["migStrategy"] == "single"


def test_kueue_queues_every_job_all_or_nothing_and_counts_gpus_but_not_efa_and_huge_pages() -> None:
    config = yaml.safe_load(values("kueue")["managerConfig"]["controllerManagerConfigYaml"])
    assert config["manageJobsWithoutQueueName"] is True
    assert {"ray.io/rayjob", "ray.io/raycluster", "batch/job"} == set(config["integrations"]["frameworks"])
    assert config["waitForPodsReady"]["requeuingStrategy"]["backoffLimitCount"] > 0
    prefixes = tuple(config["resources"]["excludeResourcePrefixes"])
    assert all(name.startswith(prefixes) for name in ("vpc.amazonaws.com/efa", "hugepages-2Mi"))
    assert not "nvidia.com/gpu".startswith(prefixes)


def test_the_autoscaler_keeps_nodes_with_a_gpu_in_use_and_balances_zones_by_a_label_that_gpu_nodes_lack() -> None:
    """It would divide the new nodes of a job among zones, of which the job can use one."""
    arguments = values("cluster-autoscaler")["extraArgs"]
    smallest_share = 1 / max(one.gpus for one in load_catalog().instances.values())
    assert arguments["scale-down-gpu-utilization-threshold"] < smallest_share
    assert arguments["status-taint"] == UNHEALTHY_TAINT.key, "other nodes are started for the pods that it refuses"
    assert (arguments["balance-similar-node-groups"], arguments["balancing-label"]) == (True, BALANCED_LABEL)
    groups = resolve_node_groups(varied({}), catalog=load_catalog())
    assert {one.name for one in groups.all() if BALANCED_LABEL in one.node_labels} == {"system", "heads"}


def test_the_autoscaler_never_starts_more_gpus_of_a_model_than_its_groups_have_at_their_largest() -> None:
    """The zone groups of a group could together exceed its max_size."""
    second = {"name": "spare", "instance_type": "p5.48xlarge", "max_size": 1}
    groups = [*dev_sections()["gpu_groups"], second]
    groups[0]["sharing"] = {"time_slices": 4}
    arguments = values("cluster-autoscaler", gpu_groups=groups)["extraArgs"]
    assert {key: value for key, value in arguments.items() if key.startswith("gpu-total")} == {
        "gpu-total_nvidia-t4": "nvidia-t4:0:16",
        "gpu-total_nvidia-h100": "nvidia-h100:0:24",
    }


def test_prometheus_has_the_configured_retention_and_selects_every_monitor() -> None:
    monitoring = {"retention_days": 9, "storage_gib": 100}
    spec = values("kube-prometheus-stack", monitoring=monitoring)["prometheus"]["prometheusSpec"]
    assert (spec["retention"], spec["retentionSize"]) == ("9d", "85GiB")
    assert spec["storageSpec"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] == "100Gi"
    assert [value for key, value in spec.items() if key.endswith("NilUsesHelmValues")] == [False] * 5


def test_grafana_requires_a_login_except_of_viewers_who_may_change_nothing() -> None:
    grafana = values("kube-prometheus-stack")["grafana"]
    assert grafana["grafana.ini"]["auth.anonymous"] == {"enabled": False}
    assert "adminPassword" not in grafana
    for setting, section in (("monitoring", {"open_to_teams": True}), ("single_sign_on", SINGLE_SIGN_ON)):
        grafana = values("kube-prometheus-stack", **{setting: section})["grafana"]
        ini = grafana["grafana.ini"]
        assert ini["auth.anonymous"] == {"enabled": True, "org_role": "Viewer", "hide_version": True}, setting
        assert ini["users"] == {"allow_sign_up": False, "viewers_can_edit": False}
        # Grafana would pass a viewer's alerts and silences on to it.
        assert grafana["sidecar"]["datasources"]["alertmanager"] == {"enabled": False}
