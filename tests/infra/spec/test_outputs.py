"""The contract between the stack and job submission."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.node_group import resolve_node_groups
from infra.spec.outputs import GpuGroupOutput, StackOutputs, check_outputs, gpu_group_output, read_outputs
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.spec.samples import Tree, changed, dev_sections

CATALOG, RELEASE = load_catalog(), load_release()
ROLE = "arn:aws:iam::111122223333:role/trainer"


def gpu_groups_of(settings: StackSettings) -> list[GpuGroupOutput]:
    return [gpu_group_output(group) for group in resolve_node_groups(settings, catalog=CATALOG).gpu]


def sample_outputs() -> Tree:
    groups = gpu_groups_of(from_mapping(dev_sections(), file="sample"))
    return {
        "schema_version": 1,
        "platform": RELEASE.platform,
        "environment": "dev",
        "kind": "dev",
        "region": "us-east-1",
        "account": "111122223333",
        "cluster": {"name": "dev", "endpoint": "https://x.y", "certificate_authority": "TFM="}
        | {"kubernetes": RELEASE.kubernetes.version},
        "registries": {"trainer": "ecr/trainer", "session": "ecr/trainer", "mlflow": "ecr/mlflow"},
        "storage": {"checkpoint_bucket": "c", "artifact_bucket": "a", "efs_id": "fs-1", "efs_access_point": "fsap-1"},
        "mlflow_uri": "http://mlflow.mlflow.svc:5000",
        "roles": {"trainer": ROLE},
        "teams": [{"name": "research", "namespace": "research", "queue": "research"}],
        "gpu_groups": [group.model_dump(mode="json") for group in groups],
    }


def test_a_groups_output_has_devices_limits_labels_drain_time_and_sharing() -> None:
    t4, h100 = read_outputs(sample_outputs(), file="sample").gpu_groups
    assert (h100.name, h100.instance_type, h100.gpus_per_node, h100.devices_per_gpu) == ("h100", "p5.48xlarge", 8, 1)
    assert (h100.efa_per_node, h100.max_nodes, h100.capacity_type) == (32, 2, "ON_DEMAND")
    assert (t4.efa_per_node, t4.max_nodes, t4.capacity_type) == (0, 4, "SPOT")
    assert h100.labels == {
        "ray-train-platform/group": "h100",
        "ray-train-platform/gpu": "h100",
        "k8s.amazonaws.com/accelerator": "nvidia-h100",
        "ray-train-platform/capacity": "on_demand",
    }
    assert h100.selector == {"ray-train-platform/group": "h100"}
    block = {"kind": "capacity_block", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
    changes = {
        "gpu_groups.1.capacity": {**block, "ends": "2030-01-08T11:30:00Z"},
        "gpu_groups.1.placement": "none",
        "gpu_groups.0.sharing": {"time_slices": 4},
    }
    t4, h100 = gpu_groups_of(from_mapping(changed(dev_sections(), changes), file="sample"))
    assert (t4.devices_per_gpu, t4.drain_before) == (4, None)
    assert h100.drain_before is not None
    assert h100.drain_before.isoformat() == "2030-01-08T10:50:00+00:00"


def test_outputs_of_a_stack_of_this_release_round_trip_and_are_accepted() -> None:
    outputs = read_outputs(sample_outputs(), file="sample")
    assert StackOutputs.model_validate(json.loads(outputs.model_dump_json())) == outputs
    check_outputs(outputs, RELEASE, catalog=CATALOG)
    changes = {"gpu_groups.1.efa_per_node": 0, "gpu_groups.1.drain_before": ...}
    outputs = read_outputs(changed(sample_outputs(), changes), file="sample")
    check_outputs(outputs, RELEASE, catalog=CATALOG)
    assert outputs.gpu_groups[1].drain_before is None


def test_a_stack_of_another_release_is_refused_with_every_difference_in_order() -> None:
    changes = {
        "platform": "0.0.9",
        "cluster.kubernetes": "1.34",
        "registries": {"trainer": "x", "session": "x"},
        "gpu_groups.0.instance_type": "p9.48xlarge",
        "gpu_groups.1.gpus_per_node": 4,
    }
    with pytest.raises(RefusedError) as caught:
        check_outputs(read_outputs(changed(sample_outputs(), changes), file="sample"), RELEASE, catalog=CATALOG)
    assert str(caught.value).splitlines() == [
        "stack dev does not match this checkout's release:",
        "  platform: the stack is 0.0.9, this checkout is 0.1.0",
        "  cluster.kubernetes: the stack runs 1.34, supported: 1.35",
        "  registries.mlflow: the release has this image, the stack has no repository for it",
        "  gpu_groups.t4: p9.48xlarge is not in the catalogue",
        "  gpu_groups.h100: 4 GPUs and 32 EFA interfaces; p5.48xlarge has 8 and 32",
        "  remedy: check out the stack's version, or bring the stack up with this one",
    ]


def test_an_output_that_breaks_the_contract_is_refused_by_name() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"mlflow_uri": ...}, "mlflow_uri: is required: Tracking URI inside the cluster."),
        ({"schema_version": 2}, "schema_version = 2: must be one of 1"),
        ({"gpu_groups.0.gpu_per_node": 1}, "gpu_groups.0.gpu_per_node: no such setting\n    remedy: did you mean gpus"),
        ({"roles.train": ROLE}, "roles.train"),
        ({"cluster.endpoint": "http://x"}, "cluster.endpoint = http://x"),
    ]
    for changes, expected in cases:
        with pytest.raises(SettingsError) as caught:
            read_outputs(changed(sample_outputs(), changes), file="pulumi stack output")
        assert str(caught.value).startswith("pulumi stack output: "), changes
        assert expected in str(caught.value), changes


def test_a_label_in_the_settings_cannot_override_the_groups_own() -> None:
    labels = {"ray-train-platform/group": "other", "tier": "gold"}
    settings = from_mapping(changed(dev_sections(), {"gpu_groups.0.labels": labels}), file="sample")
    output = gpu_groups_of(settings)[0]
    assert output.labels["ray-train-platform/group"] == "t4"
    assert output.labels["tier"] == "gold"
