"""Values of every chart in every environment: scheduling, permissions and images."""

from __future__ import annotations

import csv
from typing import Any

import pytest
import yaml

from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from infra.spec.names import PLATFORM_ACCOUNTS, cluster_name
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import BALANCED_LABEL, GPU_TAINT, HEAD_TAINT, SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from infra.spec.sharing import DEVICE_PLUGIN_CONFIG_LABEL, sharing_labels
from platform_charts.charts.dcgm_exporter import COUNTERS
from platform_charts.charts.image_names import ImageNames, images_of, without_digest
from platform_charts.charts.installs import installed_charts
from platform_charts.objects.dashboards import dashboards
from platform_charts.objects.phases import ClusterFacts, platform_objects
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.infra.spec.samples import SINGLE_SIGN_ON, changed, dev_sections
from tests.platform_charts.charts.releases import FULL_REFERENCE, installs_of, named_images, with_digests

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
GPU_CHARTS = {"nvidia-device-plugin", "dcgm-exporter", "aws-efa-k8s-device-plugin"}


def varied(changes: dict[str, Any]) -> StackSettings:
    return from_mapping(changed(dev_sections(), changes), file="sample")


def values(chart: str, **changes: object) -> Manifest:
    """Values of a chart in the sample environment, with values at dotted paths replaced."""
    settings = varied({path.replace("__", "."): value for path, value in changes.items()})
    return installs_of(settings)[chart].values


@every_environment
def test_every_installed_chart_is_pinned(environment: str) -> None:
    installs = installs_of(settings_of(environment))
    assert tuple(installs) == installed_charts(settings_of(environment))
    assert set(installs) <= set(load_release().charts)
    assert [name for name in installs if load_release().charts[name].version is None] == []


@every_environment
def test_every_chart_has_a_namespace_of_the_stack_or_of_kubernetes(environment: str) -> None:
    created = {one["metadata"]["name"] for one in objects_of(environment)["namespaces"]}
    assert {one.namespace for one in installs_of(settings_of(environment)).values()} <= created | {"kube-system"}


def objects_of(environment: str) -> dict[str, tuple[Manifest, ...]]:
    facts = ClusterFacts(
        file_system_id="fs-1",
        datasets_access_point="fsap-1",
        team_access_points={team.name: f"fsap-{team.name}" for team in settings_of(environment).teams},
        database_host="db",
        database_port=5432,
        database_secret_arn="arn:aws:secretsmanager:us-east-1:111122223333:secret:db",
        artifact_bucket="artifacts",
        registry="111122223333.dkr.ecr.us-east-1.amazonaws.com",
        account="111122223333",
        api_server_cidrs=("10.0.0.0/16",),
    )
    return dict(platform_objects(settings_of(environment), load_release(), facts))


@every_environment
def test_in_a_locked_release_every_image_in_chart_values_has_a_digest(environment: str) -> None:
    for install in installs_of(settings_of(environment), with_digests()).values():
        images = list(named_images(install.values))
        assert images, f"{install.name} has no image"
        assert [image for image in images if "@sha256:" not in image] == []


@every_environment
def test_every_image_in_chart_values_names_its_registry(environment: str) -> None:
    for install in installs_of(settings_of(environment), with_digests()).values():
        references = [*named_images(install.values), *images_of([install.values])]
        assert [one for one in references if not FULL_REFERENCE.fullmatch(one)] == []


@every_environment
def test_a_mirror_changes_only_the_registry_of_images(environment: str) -> None:
    settings, release = settings_of(environment), with_digests()
    mirrors = settings.mirrors.model_copy(update={"images": "registry.internal:5000/mirror"})
    mirrored = installs_of(settings.model_copy(update={"mirrors": mirrors}), release)
    for name, install in installs_of(settings, release).items():
        expected = [f"registry.internal:5000/mirror/{image}" for image in named_images(install.values)]
        assert list(named_images(mirrored[name].values)) == expected


def test_only_cached_registries_are_pulled_through_ecr() -> None:
    caches = {"quay.io": "1.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/quay"}
    installs = installs_of(varied({}), caches=caches)
    assert list(named_images(installs["kuberay-operator"].values)) == [
        "1.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/quay/kuberay/operator:v1.6.2"
    ]
    assert next(named_images(installs["kueue"].values)).startswith("registry.k8s.io/")


def test_the_autoscaler_starts_other_nodes_for_pods_that_a_sick_node_refuses() -> None:
    assert values("cluster-autoscaler")["extraArgs"]["status-taint"] == UNHEALTHY_TAINT.key


def test_a_mirror_takes_precedence_over_a_cache() -> None:
    images = ImageNames(load_release(), mirror="mirror", caches={"quay.io": "cache"})
    assert images["kuberay-operator"].name == "mirror/quay.io/kuberay/operator"


def test_charts_cannot_use_our_own_images() -> None:
    with pytest.raises(ValueError, match="trainer is an image of ours"):
        ImageNames(load_release())["trainer"]


@pytest.mark.parametrize("images", ["https://mirror", "mirror/", "Mirror", "mirror/a b"])
def test_an_invalid_image_mirror_is_rejected(images: str) -> None:
    with pytest.raises(SettingsError, match=r"mirrors\.images"):
        varied({"mirrors": {"images": images}})


def test_a_chart_mirror_must_be_an_https_or_oci_url() -> None:
    assert varied({"mirrors": {"charts": "oci://mirror/charts"}}).mirrors.charts == "oci://mirror/charts"
    with pytest.raises(SettingsError, match=r"mirrors\.charts"):
        varied({"mirrors": {"charts": "http://mirror"}})


def test_images_are_found_in_pods_templates_custom_resources_and_arguments() -> None:
    pod = {"initContainers": [{"image": "a:1"}], "containers": [{"image": "b@sha256:1"}]}
    manifests: list[Manifest] = [
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}},
        {"kind": "Prometheus", "spec": {"image": "c:1"}},
        {"kind": "Pod", "spec": {"containers": [{"args": ["--prometheus-config-reloader=d:1", "--other=e:1"]}]}},
    ]
    assert list(images_of(manifests)) == ["a:1", "b@sha256:1", "c:1", "d:1"]
    assert without_digest(manifests) == ("a:1", "c:1", "d:1")


def test_gpus_reach_pods_without_privileges_through_cdi() -> None:
    plugin = values("nvidia-device-plugin")
    assert plugin["deviceListStrategy"] == "cdi-cri"
    assert plugin["nvidiaDriverRoot"] == "/"
    assert plugin["securityContext"]["capabilities"] == {"add": ["SYS_ADMIN"]}


@pytest.mark.parametrize("chart", sorted(GPU_CHARTS))
def test_gpu_daemons_tolerate_only_the_taints_of_gpu_nodes(chart: str) -> None:
    keys = [(one["key"], one.get("value"), one["effect"]) for one in values(chart)["tolerations"]]
    assert keys == [(taint.key, taint.value, taint.effect) for taint in (GPU_TAINT, SPOT_TAINT, START_UP_TAINT)] + [
        (UNHEALTHY_TAINT.key, None, UNHEALTHY_TAINT.effect)
    ]


def test_the_node_exporter_runs_on_head_nodes_too() -> None:
    exporter = values("kube-prometheus-stack")["prometheus-node-exporter"]
    assert HEAD_TAINT.key in {one["key"] for one in exporter["tolerations"]}


def test_without_gpu_groups_no_gpu_chart_is_installed() -> None:
    assert GPU_CHARTS & set(installs_of(varied({"gpu_groups": [], "teams.0.gpus": {}}))) == set()


def test_the_efa_plugin_is_installed_for_instance_types_with_efa_only() -> None:
    assert "aws-efa-k8s-device-plugin" not in installs_of(varied({"gpu_groups.1.efa": False}))
    assert values("aws-efa-k8s-device-plugin")["supportedInstanceLabels"]["values"] == ["p5.48xlarge"]


def test_the_dcgm_exporters_memory_follows_the_largest_node() -> None:
    catalog = load_catalog()
    assert values("dcgm-exporter")["resources"]["limits"]["memory"] == f"{catalog.dcgm_memory_mib(8)}Mi"


def test_the_metrics_of_gpus_name_their_node() -> None:
    """Rules join them with the metrics of nodes."""
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    assert values("dcgm-exporter")["serviceMonitor"]["relabelings"] == [node]


def plugin_configs(**changes: object) -> dict[str, Any]:
    found = values("nvidia-device-plugin", **changes)["config"]["map"]
    return {name: yaml.safe_load(text) for name, text in found.items()}


def test_gpus_are_not_shared_by_default() -> None:
    (config,) = plugin_configs().values()
    assert config == {"version": "v1", "flags": {"failOnInitError": True, "migStrategy": "none"}}
    assert values("nvidia-device-plugin")["config"]["default"] == "whole"


def test_a_time_sliced_group_has_its_own_plugin_configuration() -> None:
    configs = plugin_configs(gpu_groups__0__sharing={"time_slices": 4})
    group = varied({"gpu_groups.0.sharing": {"time_slices": 4}}).gpu_groups[0]
    config = configs[sharing_labels(group.sharing)[DEVICE_PLUGIN_CONFIG_LABEL]]
    assert config["sharing"]["timeSlicing"] == {
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }
    assert set(configs) == {"whole", "time-slices-4"}


def test_a_mig_group_uses_the_single_strategy() -> None:
    configs = plugin_configs(gpu_groups__1__sharing={"mig_profile": "1g.10gb"}, gpu_groups__1__efa=False)
    assert configs["mig-1g.10gb"]["flags"]["migStrategy"] == "single"


def test_unshared_gpus_need_no_label() -> None:
    assert sharing_labels(varied({}).gpu_groups[0].sharing) == {}


def counters() -> list[list[str]]:
    lines = COUNTERS.read_text(encoding="utf-8").splitlines()
    return list(csv.reader(line for line in lines if not line.startswith("#")))


def test_every_counter_has_field_type_and_help() -> None:
    assert all(len(cells) == 3 for cells in counters())
    assert {cells[1] for cells in counters()} == {"gauge", "counter"}
    assert len({cells[0] for cells in counters()}) == len(counters())


@pytest.mark.parametrize(
    "field",
    [
        "DCGM_EXP_XID_ERRORS_COUNT",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    ],
)
def test_counters_include_the_fields_that_alerts_need(field: str) -> None:
    assert field in {cells[0] for cells in counters()}


def kueue_configuration() -> dict[str, Any]:
    text = values("kueue")["managerConfig"]["controllerManagerConfigYaml"]
    config: dict[str, Any] = yaml.safe_load(text)
    return config


@every_environment
def test_kueue_manages_team_namespaces_only(environment: str) -> None:
    (term,) = kueue_configuration()["managedJobsNamespaceSelector"]["matchExpressions"]
    assert term["operator"] == "Exists"
    namespaces = [one for one in objects_of(environment)["teams"] if one["kind"] == "Namespace"]
    managed = {one["metadata"]["name"] for one in namespaces if term["key"] in one["metadata"]["labels"]}
    assert managed == {team.name for team in settings_of(environment).teams}


def test_every_job_is_queued_and_scheduled_all_or_nothing() -> None:
    config = kueue_configuration()
    assert config["manageJobsWithoutQueueName"] is True
    assert {"ray.io/rayjob", "ray.io/raycluster", "batch/job"} == set(config["integrations"]["frameworks"])
    assert config["waitForPodsReady"]["requeuingStrategy"]["backoffLimitCount"] > 0


def test_kueue_excludes_efa_and_huge_pages_but_not_gpus() -> None:
    prefixes = tuple(kueue_configuration()["resources"]["excludeResourcePrefixes"])
    assert "vpc.amazonaws.com/efa".startswith(prefixes)
    assert "hugepages-2Mi".startswith(prefixes)
    assert not "nvidia.com/gpu".startswith(prefixes)


def test_the_kuberay_operator_has_one_gib_of_memory() -> None:
    assert values("kuberay-operator")["resources"]["limits"]["memory"] == "1Gi"


def test_the_autoscaler_discovers_its_clusters_groups_with_its_service_account() -> None:
    found = values("cluster-autoscaler")
    assert found["autoDiscovery"]["clusterName"] == cluster_name(varied({}))
    account = PLATFORM_ACCOUNTS["autoscaler"][0]
    install = installs_of(varied({}))["cluster-autoscaler"]
    assert (install.namespace, found["rbac"]["serviceAccount"]["name"]) == (account.namespace, account.name)


def test_a_node_with_a_gpu_in_use_is_not_scaled_down() -> None:
    smallest_share = 1 / max(one.gpus for one in load_catalog().instances.values())
    assert values("cluster-autoscaler")["extraArgs"]["scale-down-gpu-utilization-threshold"] < smallest_share


def test_the_autoscaler_balances_zones_by_a_label_that_gpu_nodes_lack() -> None:
    """It would divide the new nodes of a job among zones, of which the job can use one."""
    arguments = values("cluster-autoscaler")["extraArgs"]
    assert (arguments["balance-similar-node-groups"], arguments["balancing-label"]) == (True, BALANCED_LABEL)
    groups = resolve_node_groups(varied({}), catalog=load_catalog())
    assert {one.name for one in groups.all() if BALANCED_LABEL in one.node_labels} == {"system", "heads"}


def test_the_autoscaler_never_starts_more_gpus_of_a_model_than_its_groups_have_at_their_largest() -> None:
    """The zone groups of a group could together exceed its max_size."""
    second = {"name": "spare", "instance_type": "p5.48xlarge", "max_size": 1}
    groups = [*dev_sections()["gpu_groups"], second]
    groups[0]["sharing"] = {"time_slices": 4}
    arguments = autoscaler_values_of(groups)
    assert {key: value for key, value in arguments.items() if key.startswith("gpu-total")} == {
        "gpu-total_nvidia-t4": "nvidia-t4:0:16",
        "gpu-total_nvidia-h100": "nvidia-h100:0:24",
    }


def autoscaler_values_of(gpu_groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The autoscaler's arguments in the sample environment with other GPU groups."""
    found = installs_of(varied({"gpu_groups": gpu_groups}))["cluster-autoscaler"].values["extraArgs"]
    assert isinstance(found, dict)
    return found


def test_prometheus_has_the_configured_retention_and_selects_every_monitor() -> None:
    spec = values("kube-prometheus-stack", monitoring={"retention_days": 9, "storage_gib": 100})["prometheus"][
        "prometheusSpec"
    ]
    assert (spec["retention"], spec["retentionSize"]) == ("9d", "85GiB")
    assert spec["storageSpec"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] == "100Gi"
    assert [value for key, value in spec.items() if key.endswith("NilUsesHelmValues")] == [False] * 5


def test_alertmanager_uses_the_service_account_with_the_monitoring_role() -> None:
    account = PLATFORM_ACCOUNTS["monitoring"][0]
    install = installs_of(varied({}))["kube-prometheus-stack"]
    assert (install.namespace, install.values["alertmanager"]["serviceAccount"]["name"]) == account


def test_the_sidecar_sorts_our_dashboards_into_their_folder() -> None:
    sidecar = values("kube-prometheus-stack")["grafana"]["sidecar"]["dashboards"]
    (annotation,) = {one for manifest in dashboards(load_release()) for one in manifest["metadata"]["annotations"]}
    assert sidecar["folderAnnotation"] == annotation
    assert sidecar["provider"] == {"foldersFromFilesStructure": True}
    assert sidecar["searchNamespace"] == "monitoring"


def test_grafana_requires_a_login() -> None:
    grafana = values("kube-prometheus-stack")["grafana"]
    assert grafana["grafana.ini"]["auth.anonymous"] == {"enabled": False}
    assert "adminPassword" not in grafana


@pytest.mark.parametrize("setting", ["monitoring", "single_sign_on"])
def test_viewers_of_grafana_need_no_login_and_may_change_nothing(setting: str) -> None:
    section = {"monitoring": {"open_to_teams": True}, "single_sign_on": SINGLE_SIGN_ON}[setting]
    grafana = values("kube-prometheus-stack", **{setting: section})["grafana"]
    ini = grafana["grafana.ini"]
    assert ini["auth.anonymous"] == {"enabled": True, "org_role": "Viewer", "hide_version": True}
    assert ini["users"] == {"allow_sign_up": False, "viewers_can_edit": False}
    # Grafana would pass a viewer's alerts and silences on to it.
    assert grafana["sidecar"]["datasources"]["alertmanager"] == {"enabled": False}
