"""What the charts themselves make of our values, rendered by Helm; needs Helm and the archives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_TAINT, LABEL_PREFIX, SPOT_TAINT, START_UP_TAINT
from infra.spec.release import load_release
from platform_charts.charts.image_names import images_of, without_digest
from platform_charts.charts.installs import ChartInstall
from platform_charts.objects.namespaces import LEVELS
from tests.engines.helm import find_archive, find_helm, template
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.charts.releases import installs_of, with_digests
from tests.platform_charts.jobs.restricted import violations

every_chart = pytest.mark.parametrize("name", list(load_release().charts))
EVERYTHING = "prod"
"""The environment that installs every chart."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Helm's home."""
    return tmp_path_factory.mktemp("helm")


@cache
def rendered(name: str, environment: str, home: Path) -> tuple[Manifest, ...]:
    install = installs_of(settings_of(environment), with_digests())[name]
    archive = find_archive(name)
    found = template(find_helm(), archive, install.values, name=name, namespace=install.namespace, home=home)
    return tuple(found)


def pods(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Kind and pod spec of everything that makes pods."""
    for one in manifests:
        spec = one.get("spec", {})
        if one["kind"] in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            yield one["kind"], spec["template"]["spec"]
        elif one["kind"] in {"Prometheus", "Alertmanager"}:
            yield one["kind"], spec


@every_chart
def test_the_chart_takes_our_values_and_every_image_has_a_digest(name: str, home: Path) -> None:
    manifests = rendered(name, EVERYTHING, home)
    assert list(images_of(manifests)) != []
    assert without_digest(manifests) == ()


@every_chart
def test_no_image_is_one_that_the_release_does_not_know(name: str, home: Path) -> None:
    known = {image.repository for image in load_release().images.values()}
    names = {image.partition("@")[0] for image in images_of(rendered(name, EVERYTHING, home))}
    assert {one.rpartition(":")[0] if ":" in one.rpartition("/")[2] else one for one in names} <= known


@every_chart
def test_no_definition_comes_with_a_chart_whose_definitions_the_stack_applies(name: str, home: Path) -> None:
    install = installs_of(settings_of(EVERYTHING))[name]
    kinds = {one["kind"] for one in rendered(name, EVERYTHING, home)}
    assert not (install.skip_crds and "CustomResourceDefinition" in kinds)


@every_chart
def test_operators_run_on_system_nodes_and_daemons_where_our_taints_are_tolerated(name: str, home: Path) -> None:
    for kind, spec in pods(rendered(name, EVERYTHING, home)):
        if kind == "DaemonSet":
            ours = {GPU_TAINT.key, SPOT_TAINT.key, START_UP_TAINT.key}
            assert ours <= {one.get("key") for one in spec["tolerations"]}
        else:
            assert spec["nodeSelector"][f"{LABEL_PREFIX}/group"] == "system", spec


@pytest.mark.parametrize("name", ["nvidia-device-plugin", "dcgm-exporter"])
def test_daemons_for_gpus_go_to_nodes_with_gpus_only(name: str, home: Path) -> None:
    daemons = [spec for kind, spec in pods(rendered(name, EVERYTHING, home)) if kind == "DaemonSet"]
    for spec in daemons:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [term["key"] for one in terms for term in one["matchExpressions"]] == [f"{LABEL_PREFIX}/gpu"]
    assert daemons != []


@every_chart
def test_every_long_running_container_says_what_it_needs(name: str, home: Path) -> None:
    """A namespace with a quota or a full node otherwise decides it; the plugin's own containers are the exception."""
    for kind, spec in pods(rendered(name, EVERYTHING, home)):
        if kind in {"Deployment", "StatefulSet"}:
            without = [
                one["name"] for one in spec["containers"] if "memory" not in one.get("resources", {}).get("limits", {})
            ]
            assert without == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_chart_of_the_environment_renders(environment: str, home: Path) -> None:
    installs: Mapping[str, ChartInstall] = installs_of(settings_of(environment))
    assert all(rendered(name, environment, home) for name in installs)


def test_kueue_reads_the_configuration_that_we_wrote(home: Path) -> None:
    (config,) = [
        one for one in rendered("kueue", EVERYTHING, home) if one["metadata"]["name"] == "kueue-manager-config"
    ]
    read = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert read["managedJobsNamespaceSelector"]["matchExpressions"][0]["key"] == f"{LABEL_PREFIX}/team"
    assert read["waitForPodsReady"]["timeout"] == "40m"


def test_kueues_webhooks_leave_all_namespaces_but_the_teams_alone(home: Path) -> None:
    hooks = [
        hook
        for one in rendered("kueue", EVERYTHING, home)
        if one["kind"] == "MutatingWebhookConfiguration"
        for hook in one["webhooks"]
        if any("jobs" in rule["resources"] for rule in hook["rules"])
    ]
    selectors = [hook["namespaceSelector"]["matchExpressions"] for hook in hooks]
    assert selectors != []
    assert all(one == [{"key": f"{LABEL_PREFIX}/team", "operator": "Exists"}] for one in selectors)


def test_the_exporter_exports_our_counters(home: Path) -> None:
    (counters,) = [one for one in rendered("dcgm-exporter", EVERYTHING, home) if one["kind"] == "ConfigMap"]
    assert "DCGM_EXP_XID_ERRORS_COUNT" in counters["data"]["metrics"]


def test_the_password_of_grafana_is_made_by_the_chart_and_not_a_known_one(home: Path) -> None:
    (secret,) = [
        one
        for one in rendered("kube-prometheus-stack", EVERYTHING, home)
        if one["kind"] == "Secret" and "admin-password" in one.get("data", {})
    ]
    assert len(secret["data"]["admin-password"]) > 40


@every_chart
def test_the_level_of_its_namespace_admits_every_pod_of_a_chart(name: str, home: Path) -> None:
    for one in rendered(name, EVERYTHING, home):
        level = LEVELS.get(one["metadata"].get("namespace", ""), "privileged")
        if level == "privileged" or one["kind"] not in {"Deployment", "DaemonSet", "StatefulSet", "Job"}:
            continue
        found = violations({"spec": one["spec"]["template"]["spec"]})
        # What `restricted` refuses, and `baseline` does not (Kubernetes, "Pod Security Standards").
        lenient = ("allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "runAsUser", "seccompProfile")
        assert [rule for rule in found if level == "restricted" or not rule.endswith(lenient)] == []


@every_chart
def test_behind_a_mirror_no_image_comes_from_anywhere_else(name: str, home: Path) -> None:
    settings = settings_of(EVERYTHING)
    mirrors = settings.mirrors.model_copy(update={"images": "registry.internal:5000/mirror"})
    install = installs_of(settings.model_copy(update={"mirrors": mirrors}), with_digests())[name]
    manifests = template(
        find_helm(), find_archive(name), install.values, name=name, namespace=install.namespace, home=home
    )
    assert [image for image in images_of(manifests) if not image.startswith("registry.internal:5000/mirror/")] == []
