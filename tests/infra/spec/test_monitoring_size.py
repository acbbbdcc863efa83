"""Memory of Prometheus: it follows the largest number of nodes, and has to fit a system node."""

from __future__ import annotations

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.monitoring_size import prometheus_memory_gib
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.spec.samples import Tree, changed, dev_sections
from tests.platform_charts.charts.releases import installs_of


def settings(**sections: Tree) -> StackSettings:
    return from_mapping({**dev_sections(), **sections}, file="sample")


def with_gpu_nodes(number: int) -> StackSettings:
    """The sample environment with so many nodes of eight GPUs, and large system nodes."""
    changes = {
        "gpu_groups.1.max_size": number,
        "system_nodes": {"instance_type": "m7i.4xlarge"},
        "network.pods_per_node": 16,
    }
    return from_mapping(changed(dev_sections(), changes), file="sample")


def memory_of(found: StackSettings) -> int:
    return prometheus_memory_gib(found.launch_requests(), load_catalog(), chosen=found.monitoring.memory_gib)


def test_memory_grows_with_the_nodes_and_a_set_size_becomes_request_and_limit() -> None:
    assert memory_of(with_gpu_nodes(400)) > memory_of(with_gpu_nodes(200)) > memory_of(settings()) == 4
    found = settings(monitoring={"memory_gib": 7})
    resources = installs_of(found)["kube-prometheus-stack"].values["prometheus"]["prometheusSpec"]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("7Gi", "7Gi")


def test_a_system_node_that_is_too_small_for_it_is_refused() -> None:
    expected = r"system_nodes.instance_type = m7i.xlarge: too small: it has 12 GiB for a pod, and Prometheus gets 64 GiB, as set"
    with pytest.raises(SettingsError, match=expected):
        settings(monitoring={"memory_gib": 64})
