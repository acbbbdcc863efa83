"""The charts rendered by Helm with our values; needs Helm and the archives."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from typing import Any

import yaml

from infra.spec.node_labels import GPU_TAINT, HEAD_TAINT, LABEL_PREFIX, SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from infra.spec.uis import GRAFANA, GRAFANA_LOGIN, GRAFANA_URI, SHARED_UIS
from platform_charts.charts.image_names import images_of, without_digest
from platform_charts.objects.namespaces import LEVELS
from platform_charts.objects.queueing import aggregated_roles
from tests.engines.helm import find_helm, find_pinned_archive, template
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.charts.releases import FULL_REFERENCE, REGISTRY, installs_of
from tests.platform_charts.charts.rendering import pods, rendered
from tests.platform_charts.jobs.restricted import violations

ENVIRONMENT = "prod"
"""An environment that installs every chart."""

CHARTS = tuple(load_release().charts)


def test_every_chart_of_every_environment_renders_images_of_the_release_with_registry_and_digest() -> None:
    known = {image.reference(REGISTRY).partition(":")[0] for image in load_release().images.values()}
    for environment in ENVIRONMENTS:
        for name in installs_of(settings_of(environment)):
            manifests = rendered(name, environment)
            images = list(images_of(manifests))
            assert images != []
            assert without_digest(manifests) == ()
            assert {image.partition("@")[0].partition(":")[0] for image in images} <= known
            assert [one for one in images if not FULL_REFERENCE.fullmatch(one)] == []


def test_the_stack_deletes_every_aggregated_role_before_its_chart_and_applies_its_crds_itself() -> None:
    aggregated = {
        one["metadata"]["name"]: one["aggregationRule"]
        for name in CHARTS
        for one in rendered(name, ENVIRONMENT)
        if "aggregationRule" in one
    }
    assert aggregated == {one["metadata"]["name"]: one["aggregationRule"] for one in aggregated_roles()}
    for name, install in installs_of(settings_of(ENVIRONMENT)).items():
        kinds = {one["kind"] for one in rendered(name, ENVIRONMENT)}
        assert not (install.skip_crds and "CustomResourceDefinition" in kinds), name


def test_operators_run_on_system_nodes_and_daemons_tolerate_our_taints() -> None:
    taints = {GPU_TAINT.key, SPOT_TAINT.key, START_UP_TAINT.key, UNHEALTHY_TAINT.key}
    for name in CHARTS:
        for workload, spec in pods(rendered(name, ENVIRONMENT)):
            if workload["kind"] == "DaemonSet":
                ours = taints | ({HEAD_TAINT.key} if name == "kube-prometheus-stack" else set())
                tolerated = {one.get("key") for one in spec["tolerations"]}
                assert ours <= tolerated or {"operator": "Exists"} in spec["tolerations"], name
            else:
                assert spec["nodeSelector"][f"{LABEL_PREFIX}/group"] == "system", name


def test_gpu_daemons_run_on_gpu_nodes_only() -> None:
    for name in ("nvidia-device-plugin", "dcgm-exporter"):
        daemons = [spec for one, spec in pods(rendered(name, ENVIRONMENT)) if one["kind"] == "DaemonSet"]
        affinities = [
            one["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] for one in daemons
        ]
        keys = [
            expression["key"]
            for affinity in affinities
            for term in affinity["nodeSelectorTerms"]
            for expression in term["matchExpressions"]
        ]
        assert keys == [f"{LABEL_PREFIX}/gpu"] * len(daemons) != [], name


def test_kueues_chart_has_our_configuration_and_its_job_webhooks_select_team_namespaces_only() -> None:
    objects = rendered("kueue", ENVIRONMENT)
    (config,) = [one for one in objects if one["metadata"]["name"] == "kueue-manager-config"]
    read = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert read["managedJobsNamespaceSelector"]["matchExpressions"][0]["key"] == f"{LABEL_PREFIX}/team"
    assert read["waitForPodsReady"]["timeout"] == "40m"
    hooks = [
        hook["namespaceSelector"]["matchExpressions"]
        for one in objects
        if one["kind"] == "MutatingWebhookConfiguration"
        for hook in one["webhooks"]
        if any("jobs" in rule["resources"] for rule in hook["rules"])
    ]
    assert hooks != []
    assert all(one == [{"key": f"{LABEL_PREFIX}/team", "operator": "Exists"}] for one in hooks)


def test_the_charts_make_the_counters_of_dcgm_and_grafanas_password() -> None:
    (counters,) = [one for one in rendered("dcgm-exporter", ENVIRONMENT) if one["kind"] == "ConfigMap"]
    assert "DCGM_EXP_XID_ERRORS_COUNT" in counters["data"]["metrics"]
    secrets = [one for one in rendered("kube-prometheus-stack", ENVIRONMENT) if one["kind"] == "Secret"]
    (password,) = [one["data"]["admin-password"] for one in secrets if "admin-password" in one.get("data", {})]
    assert len(password) > 40


def test_every_pod_of_a_chart_complies_with_its_namespaces_pod_security_level() -> None:
    # Controls of `restricted` that `baseline` lacks (Kubernetes, "Pod Security Standards").
    restricted_only = ("allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "runAsUser", "seccompProfile")
    for one in (one for name in CHARTS for one in rendered(name, ENVIRONMENT)):
        level = LEVELS.get(one["metadata"].get("namespace", ""), "privileged")
        if level == "privileged" or one["kind"] not in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            continue
        found = violations({"spec": one["spec"]["template"]["spec"]})
        assert [rule for rule in found if level == "restricted" or not rule.endswith(restricted_only)] == []


_CHART = "kube-prometheus-stack"
_NAMED = {"grafana": 3000}
"""The port that Grafana's Service names; the others have numbers."""


def test_a_service_of_the_chart_selects_the_pods_by_the_same_labels_and_reaches_the_port() -> None:
    services = [one for one in rendered(_CHART, ENVIRONMENT) if one["kind"] == "Service"]
    for name in ("grafana", "prometheus", "alertmanager"):
        ui = SHARED_UIS[name]
        targets = {
            _NAMED.get(str(port["targetPort"]), port["targetPort"])
            for one in services
            if ui.labels.items() <= (one["spec"].get("selector") or {}).items()
            for port in one["spec"]["ports"]
        }
        assert ui.port in targets, name


def test_the_chart_makes_grafanas_login_and_names_its_service_and_pods_as_the_proxy_and_the_policy_do() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in rendered(_CHART, ENVIRONMENT)}
    assert {GRAFANA_LOGIN.user, GRAFANA_LOGIN.password} <= made["Secret", GRAFANA_LOGIN.secret]["data"].keys()
    ports = made["Service", GRAFANA]["spec"]["ports"]
    assert f"http://{GRAFANA}.monitoring.svc:{ports[0]['port']}" == GRAFANA_URI
    pod = made["Deployment", GRAFANA]["spec"]["template"]
    assert SHARED_UIS["grafana"].labels.items() <= pod["metadata"]["labels"].items()


def test_every_archive_has_the_pinned_versions() -> None:
    release = load_release()
    for name, chart in release.charts.items():
        with tarfile.open(find_pinned_archive(name)) as packed:
            file = packed.extractfile(f"{name}/Chart.yaml")
            assert file is not None
            head = yaml.safe_load(file.read())
        assert (head["name"], head["version"]) == (name, chart.version)
        # A chart without an image of its own version needs no app_version: its images are pinned by themselves.
        if chart.app_version is not None or any(image.chart == name for image in release.images.values()):
            wanted = str(chart.app_version or chart.version).removeprefix("v")
            assert str(head.get("appVersion", head["version"])).removeprefix("v") == wanted, name


def test_the_release_pins_the_images_that_the_charts_install_by_default() -> None:
    pinned = {f"{image.repository}:{image.tag}" for image in load_release().images.values()}
    for name, install in installs_of(settings_of(ENVIRONMENT)).items():
        archive, values = find_pinned_archive(name), without_images(install.values)
        manifests = template(find_helm(), archive, values, name=name, namespace=install.namespace)
        assert [image for image in images_of(manifests) if image not in pinned] == [], name


def without_images(values: Mapping[str, Any]) -> dict[str, Any]:
    """Chart values without our images, and without containers of ours."""
    return {
        key: without_images(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in {"image", "initContainers"}
    }
