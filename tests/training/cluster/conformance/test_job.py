"""The size of the suite's job, and the group that it takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from infra.spec.errors import RefusedError
from tests.training.cluster.team_cluster import TEAM, dev_outputs, target
from training.cluster.conformance.job import SuiteJob, chosen_group, suite_job
from training.cluster.context import ClusterContext, team_named
from training.errors import SettingsError

NOW = datetime(2026, 11, 24, 8, 30, tzinfo=UTC)
(A10G,) = [one for one in dev_outputs()["gpu_groups"] if one["name"] == "a10g"]


def group(name: str, **changes: object) -> dict[str, Any]:
    """Group a10g of dev, changed."""
    labels = {key: name if value == "a10g" else value for key, value in A10G["labels"].items()}
    return {**A10G, "name": name, "labels": labels, "capacity_type": "ON_DEMAND", **changes}


def stack(*groups: dict[str, Any]) -> ClusterContext:
    """The dev stack with these GPU groups."""
    found = target(gpu_groups=list(groups))
    return ClusterContext(env="dev", target=found, team=team_named(found.outputs, TEAM))


def best(*groups: dict[str, Any]) -> str | None:
    """The group that is taken if none is named."""
    found = chosen_group(stack(*groups), name=None, use_gpu=None)
    return None if found is None else found.name


def job(*groups: dict[str, Any]) -> SuiteJob:
    """The job on the group that is taken."""
    context = stack(*groups)
    return suite_job(context, group=chosen_group(context, name=None, use_gpu=None), now=NOW)


def settings_of(made: SuiteJob) -> dict[str, Any]:
    """The settings of its training."""
    (config,) = [one for one in made.manifests if one["kind"] == "ConfigMap"]
    (text,) = [value for key, value in config["data"].items() if key.endswith(".yaml")]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_two_nodes_come_before_one_on_demand_before_spot_and_the_cheapest_first() -> None:
    one = group("one", max_nodes=1, instance_type="g5.xlarge", gpus_per_node=1, efa_per_node=0)
    spot = group("spot", capacity_type="SPOT", instance_type="g5.xlarge", gpus_per_node=1, efa_per_node=0)
    dear = group("dear", instance_type="g5.48xlarge", gpus_per_node=8)
    block = group("block", instance_type="g5.xlarge", drain_before=(NOW + timedelta(days=1)).isoformat())
    shared = group("shared", devices_per_gpu=4)
    assert best(one, spot, dear, group("plain"), block, shared) == "plain"
    assert best(one, spot, dear, block, shared) == "dear"
    assert best(one, spot, block, shared) == "spot"
    assert best(one, block, shared) == "one"
    assert best(block, shared) is None
    assert best() is None


def test_a_stack_without_a_group_for_the_job_is_refused_where_gpus_or_a_group_are_asked_for() -> None:
    with pytest.raises(RefusedError, match="has no GPU group for the job"):
        chosen_group(stack(group("shared", devices_per_gpu=4)), name=None, use_gpu=True)
    with pytest.raises(SettingsError, match="no such GPU group") as refused:
        chosen_group(stack(), name="a10g", use_gpu=None)
    assert "it has none" in str(refused.value)


def test_the_job_has_all_gpus_of_two_nodes_or_of_the_only_one_and_a_rank_to_kill() -> None:
    small = {"max_nodes": 1, "instance_type": "g5.xlarge", "gpus_per_node": 1, "efa_per_node": 0}
    for groups, shape, killed in (
        ([group("plain")], (2, 4, 8), 1),
        ([group("one", max_nodes=1)], (1, 4, 4), 1),
        ([group("one", **small)], (1, 1, 1), 0),
    ):
        made = job(*groups)
        assert (made.shape.pods, made.shape.gpus, made.shape.ranks) == shape
        settings = settings_of(made)
        assert (settings["scale"]["workers"], settings["data"]["options"]["rank"]) == (shape[2], killed)
        assert settings["loop"]["global_batch"] % shape[2] == 0
    made = job()
    assert (made.shape.pods, made.shape.gpus, made.group, made.dollars_per_hour) == (2, 0, None, None)
