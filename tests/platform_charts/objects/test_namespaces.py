"""Namespaces, quotas and RBAC of teams."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from infra.spec.catalog import Gpu
from infra.spec.errors import SettingsError
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import GPU_RESOURCE
from infra.spec.settings import StackSettings
from infra.spec.settings.nodes import Sharing
from infra.spec.sharing import devices_per_gpu
from platform_charts.objects.access import QUEUE_READER_RULES, SUBMITTER_RULES
from platform_charts.objects.namespaces import LEVELS, namespaces
from platform_charts.objects.quotas import quotas
from platform_charts.objects.shares import CPU, MEMORY, RESOURCES, GroupShares, divide, quantity, reachable_gpus
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


def test_teams_have_no_critical_pods_and_jobs_no_api_token() -> None:
    for team in settings_of("prod").teams:
        spec = named(all_of("prod"), "ResourceQuota", "no-critical-pods", namespace=team.name)["spec"]
        [expression] = spec["scopeSelector"]["matchExpressions"]
        assert spec["hard"] == {"pods": "0"}
        assert set(expression["values"]) == {"platform-critical", "system-cluster-critical", "system-node-critical"}
        account = named(all_of("prod"), "ServiceAccount", "trainer", namespace=team.name)
        assert account["automountServiceAccountToken"] is False


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


def test_the_groups_of_all_teams_read_the_queues() -> None:
    bindings = of_kind(all_of("prod"), "ClusterRoleBinding")
    readers = next(one for one in bindings if one["subjects"][0]["kind"] == "Group")
    assert [one["name"] for one in readers["subjects"]] == [
        "ray-train-platform:team:research",
        "ray-train-platform:team:production",
    ]


_AS_MUCH_AS_IT_TAKES = settings(deadline=None, max_examples=60)


def shares_of(environment: StackSettings) -> tuple[GroupShares, ...]:
    """How the environment's node groups are divided, the head group first."""
    return divide(environment, resolve_node_groups(environment, catalog=CATALOG))


@given(shared_environments())
@_AS_MUCH_AS_IT_TAKES
def test_shares_and_the_rest_add_up_and_a_team_owns_its_gpus_and_all_of_its_whole_nodes(
    environment: StackSettings,
) -> None:
    """A job that fills its team's nodes must not wait for cores or memory that belong to others."""
    heads, *gpu = shares_of(environment)
    for group in (heads, *gpu):
        for name in RESOURCES:
            assert group.unowned[name] >= 0
            assert sum(own[name] for own in group.owned.values()) + group.unowned[name] == group.total[name]
    for group, request in zip(gpu, environment.gpu_groups, strict=True):
        per_node = {name: amount // request.max_size for name, amount in group.total.items()}
        for team in environment.teams:
            own = group.owned[team.name]
            assert own[GPU_RESOURCE] == team.gpus.get(group.group.name, 0)
            nodes = own[GPU_RESOURCE] // per_node[GPU_RESOURCE]
            assert all(own[name] >= nodes * per_node[name] for name in RESOURCES)


def test_a_team_with_a_quarter_of_the_gpus_owns_a_quarter_of_the_group() -> None:
    environment = varied({"gpu_groups.1.max_size": 4, "teams": [_team(h100=8)]})
    h100 = shares_of(environment)[2]
    assert h100.total == {CPU: 4 * 192, MEMORY: 4 * 2048 * 1024, GPU_RESOURCE: 32}
    assert h100.owned["research"] == {CPU: 192, MEMORY: 2048 * 1024, GPU_RESOURCE: 8}


def test_jobs_without_gpus_get_all_of_the_head_nodes_and_none_of_the_system_nodes() -> None:
    environment = varied({"head_nodes": {"instance_type": "m7i.xlarge", "max_size": 4}, "teams": [_team()]})
    heads, *gpu = shares_of(environment)
    assert (heads.group.name, heads.total[CPU], heads.total[MEMORY], heads.total[GPU_RESOURCE]) == (
        "heads",
        15,  # of 3920 millicores each
        4 * 14162,  # MiB: 92.5 % of 16 GiB, less 255 + 58 x 11 for the kubelet and 100 as the eviction threshold
        0,
    )
    assert [one.group.name for one in gpu] == ["t4", "h100"]


def test_a_team_that_borrows_reaches_every_gpu() -> None:
    prod = settings_of("prod")
    research, production = prod.teams
    groups = resolve_node_groups(prod, catalog=CATALOG)
    assert reachable_gpus(research, groups) == 8 * 4 + 8 * 8 + 8 * 8
    assert reachable_gpus(production, groups) == 16 + 32 + 32


def test_a_gpu_has_as_many_slices_as_nvidia_lists() -> None:
    """MIG user guide, tables of the supported profiles of A100 40 GB, H100 80 GB and H200."""
    for gib, slices in (
        (40, {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}),
        (80, {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2}),
        (141, {"1g.18gb": 7, "1g.35gb": 4, "3g.71gb": 2}),
    ):
        gpu = Gpu(model="any", count=8, memory_mib=gib * 1024, mig=True)
        assert {name: devices_per_gpu(Sharing(mig_profile=name), gpu) for name in slices} == slices


def test_a_quantity_has_the_largest_suffix_that_leaves_it_whole() -> None:
    memory = {0: "0", 512: "512Mi", 28_324: "28324Mi", 32_768: "32Gi", 5 * 2**20: "5Ti"}
    cpus = {0: "0", 48: "48", 1_500: "1500", 2_000: "2k"}
    for resource, amounts in ((MEMORY, memory), (CPU, cpus)):
        assert {amount: quantity(resource, amount) for amount in amounts} == amounts


def _team(name: str = "research", **gpus: int) -> dict[str, object]:
    return {"name": name, "gpus": gpus}
