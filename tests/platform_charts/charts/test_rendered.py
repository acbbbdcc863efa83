"""The charts rendered by Helm with our values; needs Helm and the archives."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml

from infra.spec.node_labels import GPU_TAINT, HEAD_TAINT, LABEL_PREFIX, SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from platform_charts.charts.image_names import images_of, without_digest
from platform_charts.charts.installs import ChartInstall
from platform_charts.objects.namespaces import LEVELS
from platform_charts.objects.queueing import aggregated_roles
from tests.engines.helm import find_archive, find_helm, template
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.charts.releases import FULL_REFERENCE, REGISTRY, installs_of, with_digests
from tests.platform_charts.charts.rendering import pods, rendered
from tests.platform_charts.jobs.restricted import violations

every_chart = pytest.mark.parametrize("name", list(load_release().charts))
ENVIRONMENT = "prod"
"""An environment that installs every chart."""


@every_chart
def test_the_chart_renders_and_every_image_has_a_digest(name: str) -> None:
    manifests = rendered(name, ENVIRONMENT)
    assert list(images_of(manifests)) != []
    assert without_digest(manifests) == ()


@every_chart
def test_every_image_is_in_the_release_manifest(name: str) -> None:
    known = {image.reference(REGISTRY).partition(":")[0] for image in load_release().images.values()}
    found = {image.partition("@")[0].partition(":")[0] for image in images_of(rendered(name, ENVIRONMENT))}
    assert found <= known


@every_chart
def test_every_image_names_its_registry(name: str) -> None:
    references = list(images_of(rendered(name, ENVIRONMENT)))
    assert [one for one in references if not FULL_REFERENCE.fullmatch(one)] == []


@every_chart
def test_the_stack_deletes_every_aggregated_role_before_its_chart(name: str) -> None:
    aggregated = {
        one["metadata"]["name"]: one["aggregationRule"]
        for one in rendered(name, ENVIRONMENT)
        if "aggregationRule" in one
    }
    ours = aggregated_roles() if name == "kueue" else ()
    assert aggregated == {one["metadata"]["name"]: one["aggregationRule"] for one in ours}


@every_chart
def test_charts_whose_crds_the_stack_applies_render_no_crds(name: str) -> None:
    install = installs_of(settings_of(ENVIRONMENT))[name]
    kinds = {one["kind"] for one in rendered(name, ENVIRONMENT)}
    assert not (install.skip_crds and "CustomResourceDefinition" in kinds)


@every_chart
def test_operators_run_on_system_nodes_and_daemons_tolerate_our_taints(name: str) -> None:
    for workload, spec in pods(rendered(name, ENVIRONMENT)):
        if workload["kind"] == "DaemonSet":
            ours = {GPU_TAINT.key, SPOT_TAINT.key, START_UP_TAINT.key, UNHEALTHY_TAINT.key}
            ours |= {HEAD_TAINT.key} if name == "kube-prometheus-stack" else set()
            tolerated = {one.get("key") for one in spec["tolerations"]}
            assert ours <= tolerated or {"operator": "Exists"} in spec["tolerations"]
        else:
            assert spec["nodeSelector"][f"{LABEL_PREFIX}/group"] == "system", spec


@pytest.mark.parametrize("name", ["nvidia-device-plugin", "dcgm-exporter"])
def test_gpu_daemons_run_on_gpu_nodes_only(name: str) -> None:
    daemons = [spec for one, spec in pods(rendered(name, ENVIRONMENT)) if one["kind"] == "DaemonSet"]
    for spec in daemons:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [term["key"] for one in terms for term in one["matchExpressions"]] == [f"{LABEL_PREFIX}/gpu"]
    assert daemons != []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_chart_of_the_environment_renders(environment: str) -> None:
    installs: Mapping[str, ChartInstall] = installs_of(settings_of(environment))
    assert all(rendered(name, environment) for name in installs)


def test_kueues_config_map_has_our_configuration() -> None:
    (config,) = [one for one in rendered("kueue", ENVIRONMENT) if one["metadata"]["name"] == "kueue-manager-config"]
    read = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert read["managedJobsNamespaceSelector"]["matchExpressions"][0]["key"] == f"{LABEL_PREFIX}/team"
    assert read["waitForPodsReady"]["timeout"] == "40m"


def test_kueues_job_webhooks_select_team_namespaces_only() -> None:
    hooks = [
        hook
        for one in rendered("kueue", ENVIRONMENT)
        if one["kind"] == "MutatingWebhookConfiguration"
        for hook in one["webhooks"]
        if any("jobs" in rule["resources"] for rule in hook["rules"])
    ]
    selectors = [hook["namespaceSelector"]["matchExpressions"] for hook in hooks]
    assert selectors != []
    assert all(one == [{"key": f"{LABEL_PREFIX}/team", "operator": "Exists"}] for one in selectors)


def test_the_dcgm_exporter_has_our_counters() -> None:
    (counters,) = [one for one in rendered("dcgm-exporter", ENVIRONMENT) if one["kind"] == "ConfigMap"]
    assert "DCGM_EXP_XID_ERRORS_COUNT" in counters["data"]["metrics"]


def test_the_chart_generates_grafanas_password() -> None:
    (secret,) = [
        one
        for one in rendered("kube-prometheus-stack", ENVIRONMENT)
        if one["kind"] == "Secret" and "admin-password" in one.get("data", {})
    ]
    assert len(secret["data"]["admin-password"]) > 40


@every_chart
def test_every_pod_of_a_chart_complies_with_its_namespaces_pod_security_level(name: str) -> None:
    for one in rendered(name, ENVIRONMENT):
        level = LEVELS.get(one["metadata"].get("namespace", ""), "privileged")
        if level == "privileged" or one["kind"] not in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            continue
        found = violations({"spec": one["spec"]["template"]["spec"]})
        # Controls of `restricted` that `baseline` lacks (Kubernetes, "Pod Security Standards").
        restricted_only = ("allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "runAsUser", "seccompProfile")
        assert [rule for rule in found if level == "restricted" or not rule.endswith(restricted_only)] == []


@every_chart
def test_with_a_mirror_every_third_party_image_comes_from_the_mirror(name: str) -> None:
    settings = settings_of(ENVIRONMENT)
    mirrors = settings.mirrors.model_copy(update={"images": "registry.internal:5000/mirror"})
    install = installs_of(settings.model_copy(update={"mirrors": mirrors}), with_digests())[name]
    manifests = template(find_helm(), find_archive(name), install.values, name=name, namespace=install.namespace)
    sources = ("registry.internal:5000/mirror/", f"{REGISTRY}/")
    assert [image for image in images_of(manifests) if not image.startswith(sources)] == []
