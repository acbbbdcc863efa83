"""The DaemonSet that pulls the trainer image onto GPU nodes before a job needs it."""

from __future__ import annotations

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from platform_charts.objects.image_pull import IMAGE_PULL
from platform_charts.objects.phases import platform_objects
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.objects.samples import FACTS, varied


def daemon_sets(settings: StackSettings) -> list[Manifest]:
    objects = platform_objects(settings, load_release(), FACTS)["gpu"]
    return [one for one in objects if one["kind"] == "DaemonSet" and one["metadata"]["name"] == IMAGE_PULL]


def groups_of(manifest: Manifest) -> list[str]:
    affinity = manifest["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (GROUP_LABEL, "In")
    names: list[str] = expression["values"]
    return names


def test_every_gpu_group_pulls_the_image_that_jobs_use_unless_it_is_left_out() -> None:
    release = load_release()
    for environment in ENVIRONMENTS:
        settings = settings_of(environment)
        (made,) = daemon_sets(settings)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert container["image"] == release.images["trainer"].reference(FACTS.registry)
        assert groups_of(made) == [group.name for group in resolve_node_groups(settings, catalog=load_catalog()).gpu]
    (made,) = daemon_sets(varied({"gpu_groups.0.prepull": False}))
    assert groups_of(made) == ["h100"]
    assert daemon_sets(varied({"gpu_groups.0.prepull": False, "gpu_groups.1.prepull": False})) == []


def test_all_nodes_pull_a_new_release_at_once_and_pulumi_does_not_wait_for_it() -> None:
    """The image may not be pushed yet: the provider waits ten minutes for a DaemonSet, and then fails the update."""
    (made,) = daemon_sets(varied({}))
    assert made["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_the_pod_is_restricted_asks_for_no_gpu_and_has_the_lowest_priority() -> None:
    (made,) = daemon_sets(varied({}))
    pod = made["spec"]["template"]["spec"]
    assert "priorityClassName" not in pod
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
    assert violations({"spec": pod}) == []
