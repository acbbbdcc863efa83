"""Namespaces, quotas and RBAC of teams."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from infra.spec.errors import SettingsError
from infra.spec.node_group import resolve_node_groups
from infra.spec.settings import StackSettings
from platform_charts.objects.access import QUEUE_READER_RULES, SUBMITTER_RULES
from platform_charts.objects.namespaces import LEVELS, namespaces
from platform_charts.objects.quotas import quotas
from tests.platform_charts.objects.samples import (
    CATALOG,
    ENVIRONMENTS,
    RELEASE,
    all_of,
    named,
    of_kind,
    settings_of,
    shared_environments,
    varied,
)

_LEVEL = "pod-security.kubernetes.io/enforce"


def test_only_gpu_system_allows_privileged_pods_and_namespaces_have_valid_names() -> None:
    for environment in ENVIRONMENTS:
        found = [one["metadata"] for one in of_kind(all_of(environment), "Namespace")]
        levels = {one["name"]: one["labels"][_LEVEL] for one in found}
        assert [name for name, level in levels.items() if level == "privileged"] == ["gpu-system"]
        assert [name for name, level in levels.items() if level == "baseline"] == ["monitoring"]
        assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in levels)


def test_the_pod_security_version_is_the_environments_kubernetes_minor() -> None:
    release = RELEASE.model_copy(
        update={"kubernetes": RELEASE.kubernetes.model_copy(update={"version": "1.36", "supported": ("1.35", "1.36")})}
    )
    environment = varied({})
    older = environment.model_copy(update={"cluster": environment.cluster.model_copy(update={"kubernetes": "1.35"})})
    for stack, expected in ((environment, "v1.36"), (older, "v1.35")):
        found = {one["metadata"]["labels"][f"{_LEVEL}-version"] for one in namespaces(stack, release)}
        assert found == {expected}


def test_a_team_cannot_have_the_name_of_a_platform_namespace() -> None:
    for name in LEVELS:
        with pytest.raises(SettingsError, match="not a namespace of Kubernetes or the platform"):
            varied({"teams": [{"name": name}]})


@given(shared_environments())
@settings(deadline=None, max_examples=40)
def test_the_gpu_quota_covers_at_least_the_teams_own_gpus(environment: StackSettings) -> None:
    objects = quotas(environment, RELEASE, resolve_node_groups(environment, catalog=CATALOG))
    for team in environment.teams:
        hard = named(objects, "ResourceQuota", "team", namespace=team.name)["spec"]["hard"]
        own = sum(team.gpus.values())
        assert int(hard["requests.nvidia.com/gpu"]) >= own
        assert team.borrow or int(hard["requests.nvidia.com/gpu"]) == own


def test_teams_have_no_external_services_no_more_volume_claims_and_no_critical_pods() -> None:
    for team in settings_of("prod").teams:
        hard = named(all_of("prod"), "ResourceQuota", "team", namespace=team.name)["spec"]["hard"]
        assert (hard["services.loadbalancers"], hard["services.nodeports"]) == ("0", "0")
        assert hard["persistentvolumeclaims"] == "2"
        spec = named(all_of("prod"), "ResourceQuota", "no-critical-pods", namespace=team.name)["spec"]
        [expression] = spec["scopeSelector"]["matchExpressions"]
        assert spec["hard"] == {"pods": "0"}
        assert set(expression["values"]) == {"platform-critical", "system-cluster-critical", "system-node-critical"}
        account = named(all_of("prod"), "ServiceAccount", "trainer", namespace=team.name)
        assert account["automountServiceAccountToken"] is False


def test_a_container_may_be_as_large_as_the_largest_node() -> None:
    [limits] = named(all_of("prod"), "LimitRange", "containers", namespace="research")["spec"]["limits"]
    assert limits["max"] == {"cpu": "192", "memory": "2048Gi"}
    assert limits["default"]["cpu"] == "192"


def test_a_submitter_cannot_read_secrets_or_create_or_attach_to_pods() -> None:
    rights = {
        (group, resource): set(one["verbs"])
        for one in SUBMITTER_RULES
        for group in one["apiGroups"]
        for resource in one["resources"]
    }
    assert ("", "secrets") not in rights
    assert rights["", "pods"] == {"get", "list", "watch"}
    assert not {resource for _, resource in rights} & {"pods/attach", "pods/ephemeralcontainers", "*"}
    assert {"create", "patch", "delete"} <= rights["ray.io", "rayjobs"]
    assert rights["ray.io", "rayclusters"] == {"get", "list", "watch"}
    # Of the whole cluster a team sees the queues, and changes nothing.
    assert {verb for one in QUEUE_READER_RULES for verb in one["verbs"]} == {"get", "list"}


def test_roles_are_bound_to_the_teams_group() -> None:
    objects = all_of("prod")
    binding = named(objects, "RoleBinding", "submitter", namespace="research")
    assert [one["name"] for one in binding["subjects"]] == ["ray-train-platform:team:research"]
    readers = next(one for one in of_kind(objects, "ClusterRoleBinding") if one["subjects"][0]["kind"] == "Group")
    assert [one["name"] for one in readers["subjects"]] == [
        "ray-train-platform:team:research",
        "ray-train-platform:team:production",
    ]
