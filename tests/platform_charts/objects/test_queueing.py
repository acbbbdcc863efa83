"""Kueue's objects say what the settings promise."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings

from infra.lifecycle.sandbox.recorded import recorded
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import GPU_RESOURCE
from infra.spec.settings import StackSettings
from platform_charts.charts.image_names import ImageNames
from platform_charts.charts.kueue import EXCLUDED_RESOURCE_PREFIXES, kueue_values
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import Target
from platform_charts.objects.queueing import queueing
from platform_charts.objects.shares import RESOURCES, divide
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import job
from tests.platform_charts.objects.samples import (
    CATALOG,
    ENVIRONMENTS,
    RELEASE,
    all_of,
    named,
    objects_of,
    of_kind,
    settings_of,
    shared_environments,
    varied,
)


@given(shared_environments())
@settings(deadline=None, max_examples=60)
def test_the_quotas_of_all_queues_are_the_groups_gpus(environment: StackSettings) -> None:
    groups = resolve_node_groups(environment, catalog=CATALOG)
    objects = queueing(environment, RELEASE, groups)
    holders = [*of_kind(objects, "Cohort"), *of_kind(objects, "ClusterQueue")]
    for shares in divide(environment, groups):
        quotas = [int(_quota(one, shares.group.name)["nominalQuota"]) for one in holders]
        assert sum(quotas) == shares.total[GPU_RESOURCE]


@given(shared_environments())
@settings(deadline=None, max_examples=60)
def test_a_team_borrows_gpus_only_where_its_settings_say_so(environment: StackSettings) -> None:
    objects = queueing(environment, RELEASE, resolve_node_groups(environment, catalog=CATALOG))
    for team in environment.teams:
        queue = named(objects, "ClusterQueue", team.name)
        limits = {_quota(queue, group.name).get("borrowingLimit") for group in environment.gpu_groups}
        assert limits == ({None} if team.borrow else {"0"})


def test_a_team_that_does_not_borrow_gpus_still_borrows_room_for_its_heads() -> None:
    queue = named(objects_of("prod")["queueing"], "ClusterQueue", "production")
    assert "borrowingLimit" in _quota(queue, "h100", "cpu")
    assert "borrowingLimit" not in _quota(queue, "heads", "cpu")


def test_queues_have_every_flavor_with_a_quota_for_every_resource_for_their_namespace_only() -> None:
    """Kueue's webhook demands the order; a resource that is missing would keep jobs out for ever."""
    for environment in ENVIRONMENTS:
        objects = all_of(environment)
        assert {one["apiVersion"] for one in objects if "kueue" in one["apiVersion"]} == {KUEUE_API}
        flavors = [one["metadata"]["name"] for one in of_kind(objects, "ResourceFlavor")]
        assert flavors[-1] == "heads", "it is tried last"
        assert "system" not in flavors
        for team in settings_of(environment).teams:
            queue = named(objects, "ClusterQueue", team.name)["spec"]
            [group] = queue["resourceGroups"]
            assert group["coveredResources"] == list(RESOURCES)
            assert [one["name"] for one in group["flavors"]] == flavors
            assert all([each["name"] for each in one["resources"]] == list(RESOURCES) for one in group["flavors"])
            assert queue["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": team.name}}
            local = named(objects, "LocalQueue", team.name, namespace=team.name)
            assert local["spec"] == {"clusterQueue": team.name}


def test_a_flavor_tolerates_no_taint_so_that_a_head_is_not_admitted_to_gpu_flavors() -> None:
    objects = objects_of("dev")["queueing"]
    heads = named(objects, "ResourceFlavor", "heads")["spec"]
    assert [taint["key"] for taint in heads["nodeTaints"]] == ["ray-train-platform/heads"]
    spot = named(objects, "ResourceFlavor", "t4")["spec"]
    assert [taint["key"] for taint in spot["nodeTaints"]] == ["nvidia.com/gpu", "ray-train-platform/spot"]
    assert "tolerations" not in spot


def test_a_lender_reclaims_its_gpus_and_a_job_borrows_before_it_uses_a_later_group_and_preempts_last() -> None:
    for queue in (one["spec"] for one in of_kind(all_of("prod"), "ClusterQueue")):
        assert queue["preemption"]["reclaimWithinCohort"] == "Any"
        assert queue["preemption"]["borrowWithinCohort"]["policy"] == "Never"
        assert queue["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}


def test_priorities_of_kueue_and_of_kubernetes_are_the_same_and_the_scheduler_preempts_for_the_platform_only() -> None:
    objects = all_of("prod")
    kueue = {one["metadata"]["name"]: one["value"] for one in of_kind(objects, "WorkloadPriorityClass")}
    classes = of_kind(objects, "PriorityClass")
    pods = {one["metadata"]["name"]: one["value"] for one in classes}
    platform = pods.pop("platform-critical")
    assert kueue == pods
    assert pods["training-low"] < pods["training-normal"] < pods["training-high"] < platform
    preempting = {one["metadata"]["name"] for one in classes if one["preemptionPolicy"] != "Never"}
    assert preempting == {"platform-critical"}


def test_a_job_asks_for_nothing_but_what_is_divided_or_not_counted() -> None:
    """Kueue would keep it waiting for ever, because no queue has a quota of it."""
    target = Target(outputs=recorded(settings_of("dev")).outputs, release=RELEASE, catalog=CATALOG)
    for group, workers in (("t4", 1), ("a10g", 8)):
        request = job(name="digits", workers=workers, cpus_per_worker=1, group=group)
        [made] = of_kind(render_job(request, target), "RayJob")
        asked = {
            name
            for pod in expand(made)
            for container in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])
            for kind in container["resources"].values()
            for name in kind
        }
        assert {name for name in asked if not name.startswith(EXCLUDED_RESOURCE_PREFIXES)} == set(RESOURCES)


def test_kueue_manages_the_teams_namespaces_and_no_others() -> None:
    values = kueue_values(ImageNames(RELEASE, mirror=None, caches={}))
    configuration = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    [expression] = configuration["managedJobsNamespaceSelector"]["matchExpressions"]
    managed = [
        one["metadata"]["name"]
        for one in of_kind(all_of("dev"), "Namespace")
        if expression["key"] in one["metadata"]["labels"]
    ]
    assert (expression["operator"], managed) == ("Exists", ["research", "platform"])


def _quota(holder: Manifest, flavor: str, resource: str = GPU_RESOURCE) -> dict[str, Any]:
    [group] = holder["spec"]["resourceGroups"]
    [found] = [one for one in group["flavors"] if one["name"] == flavor]
    [quota] = [one for one in found["resources"] if one["name"] == resource]
    assert isinstance(quota, dict)
    return quota


_FIXED = {"min_size": 2, "desired_size": 2, "max_size": 2, "availability_zones": ["us-east-1a"]}


def _with_groups(*groups: dict[str, Any], **changes: object) -> tuple[Manifest, ...]:
    """Kueue's objects of the sample environment with other groups."""
    settings = varied({"gpu_groups": list(groups), "teams.0.gpus": {}, **changes})
    return queueing(settings, RELEASE, resolve_node_groups(settings, catalog=CATALOG))


def test_queues_try_groups_in_order_of_preference_and_the_head_nodes_last() -> None:
    spot = {"name": "cheap", "instance_type": "g5.xlarge", "max_size": 1, "capacity": {"kind": "spot"}}
    objects = _with_groups(spot, {"name": "plain", "instance_type": "g5.xlarge", "max_size": 1})
    for holder in (*of_kind(objects, "ClusterQueue"), *of_kind(objects, "Cohort")):
        [group] = holder["spec"]["resourceGroups"]
        assert [one["name"] for one in group["flavors"]] == ["plain", "cheap", "heads"]
    reordered = _with_groups(
        spot, {"name": "plain", "instance_type": "g5.xlarge", "max_size": 1}, capacity_order=["cheap"]
    )
    [queue] = of_kind(reordered, "ClusterQueue")
    assert [one["name"] for one in queue["spec"]["resourceGroups"][0]["flavors"]] == ["cheap", "plain", "heads"]


def test_only_groups_with_topology_have_one_with_the_layers_that_ec2_reports() -> None:
    near = {"name": "near", "instance_type": "p5.48xlarge", "topology": "network", **_FIXED}
    nearer = {"name": "nearer", "instance_type": "p6-b200.48xlarge", "topology": "network", **_FIXED}
    objects = _with_groups(near, nearer, {"name": "plain", "instance_type": "g5.xlarge", "max_size": 1})
    flavors = {one["metadata"]["name"]: one["spec"].get("topologyName") for one in of_kind(objects, "ResourceFlavor")}
    assert flavors == {"near": "network-3-layers", "nearer": "network-4-layers", "plain": None, "heads": None}
    levels = {
        one["metadata"]["name"]: [level["nodeLabel"] for level in one["spec"]["levels"]]
        for one in of_kind(objects, "Topology")
    }
    assert levels["network-3-layers"] == [
        *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
        "kubernetes.io/hostname",
    ]
    assert len(levels["network-4-layers"]) == 5
    assert of_kind(all_of("prod"), "Topology") == []
