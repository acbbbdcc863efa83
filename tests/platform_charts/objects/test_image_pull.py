"""The DaemonSet that pulls the trainer image onto GPU nodes before a job needs it."""

from __future__ import annotations

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from platform_charts.objects.image_pull import IMAGE_PULL
from platform_charts.objects.phases import platform_objects
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.infra.spec.samples import changed, dev_sections
from tests.platform_charts.objects.samples import FACTS, named


def varied(**changes: object) -> StackSettings:
    return from_mapping(changed(dev_sections(), changes), file="sample")


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


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_gpu_group_pulls_the_image_that_jobs_use(environment: str) -> None:
    settings, release = settings_of(environment), load_release()
    (made,) = daemon_sets(settings)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["image"] == release.images["trainer"].reference(FACTS.registry)
    assert groups_of(made) == [group.name for group in resolve_node_groups(settings, catalog=load_catalog()).gpu]


def test_a_group_can_be_left_out() -> None:
    (made,) = daemon_sets(varied(**{"gpu_groups.0.prepull": False}))
    assert groups_of(made) == ["h100"]


def test_without_a_group_nothing_is_pulled() -> None:
    assert daemon_sets(varied(**{"gpu_groups.0.prepull": False, "gpu_groups.1.prepull": False})) == []


def test_pulumi_does_not_wait_for_an_image_that_may_not_be_pushed_yet() -> None:
    """The provider waits ten minutes for a DaemonSet, and then fails the update."""
    (made,) = daemon_sets(varied())
    assert made["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_pulumi_does_not_wait_for_the_diagnostics_of_a_sick_node() -> None:
    settings = varied(gpu_health={"diagnostics": "quick"})
    made = named(platform_objects(settings, load_release(), FACTS)["gpu"], "DaemonSet", "gpu-diagnostics")
    assert made["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_all_nodes_pull_a_new_release_at_once() -> None:
    (made,) = daemon_sets(varied())
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_the_pod_asks_for_no_gpu_and_has_the_lowest_priority() -> None:
    (made,) = daemon_sets(varied())
    pod = made["spec"]["template"]["spec"]
    assert "priorityClassName" not in pod
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
