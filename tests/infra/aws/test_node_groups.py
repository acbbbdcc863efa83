"""Node groups: capacity, placement, EFA, user data and the autoscaler's template tags."""

from __future__ import annotations

import base64
import email
from base64 import b64decode
from email.message import Message
from typing import Any

import pytest
import yaml

from infra.aws.user_data import TEMPLATE_TAG, node_config
from infra.policy import tokens
from infra.preview.recording import Recording
from infra.spec.catalog import load_catalog
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import START_UP_TAINT
from infra.spec.outputs import gpu_group_output
from infra.spec.release import load_release
from infra.spec.sharing import mig_script, sharing_labels
from tests.infra.aws.graphs import BLOCK, ENVIRONMENTS, RESERVED, RESERVED_EFA, graph, settings_of, unusual, varied

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
EFFECTS = {"NO_SCHEDULE": "NoSchedule"}


def template(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.LAUNCH_TEMPLATE, name).properties


def group(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.NODE_GROUP, name).properties


@every_environment
def test_the_system_group_and_each_gpu_group_have_their_own_launch_template(environment: str) -> None:
    recording = graph(environment)
    names = {"system", *(one.name for one in settings_of(environment).gpu_groups)}
    assert {one.name for one in recording.of_type(tokens.NODE_GROUP)} == names
    for name in names:
        found = recording.find(tokens.NODE_GROUP, name)
        assert found.property_dependencies["launchTemplate"] == (recording.find(tokens.LAUNCH_TEMPLATE, name).urn,)
        assert found.properties["launchTemplate"]["version"] == "1"


@every_environment
def test_sizes_updates_and_repair_follow_the_settings(environment: str) -> None:
    for wanted in settings_of(environment).gpu_groups:
        found = group(graph(environment), wanted.name)
        assert found["scalingConfig"] == {
            "minSize": wanted.min_size,
            "desiredSize": wanted.desired_size,
            "maxSize": wanted.max_size,
        }
        assert found["updateConfig"] == {"maxUnavailablePercentage": wanted.update_percent}
        assert found["nodeRepairConfig"] == {"enabled": wanted.repair}


@every_environment
def test_changes_of_the_desired_size_are_ignored(environment: str) -> None:
    groups = graph(environment).of_type(tokens.NODE_GROUP)
    assert {one.ignore_changes for one in groups} == {("scalingConfig.desiredSize",)}


@every_environment
def test_labels_and_permanent_taints_equal_the_outputs(environment: str) -> None:
    for wanted in resolve_node_groups(settings_of(environment), catalog=load_catalog()).gpu:
        promised = gpu_group_output(wanted)
        found = group(graph(environment), wanted.name)
        lasting = [
            (taint["key"], taint["value"], EFFECTS[taint["effect"]])
            for taint in found["taints"]
            if taint["key"] != START_UP_TAINT.key
        ]
        assert found["labels"] == promised.labels | sharing_labels(wanted.sharing)
        assert lasting == [(taint.key, taint.value, taint.effect) for taint in promised.taints]


@every_environment
def test_gpu_nodes_start_with_a_taint_that_no_job_tolerates(environment: str) -> None:
    for wanted in settings_of(environment).gpu_groups:
        found = group(graph(environment), wanted.name)
        assert START_UP_TAINT.key in {taint["key"] for taint in found["taints"]}
    outputs = graph(environment).outputs["gpu_groups"]
    assert START_UP_TAINT.key not in {taint["key"] for one in outputs for taint in one["taints"]}


@every_environment
def test_the_system_group_has_no_taint(environment: str) -> None:
    assert group(graph(environment), "system").get("taints", []) == []


@every_environment
def test_nodes_require_imdsv2_with_a_hop_limit_of_one(environment: str) -> None:
    for one in graph(environment).of_type(tokens.LAUNCH_TEMPLATE):
        assert one.properties["metadataOptions"] == {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        }


@every_environment
def test_the_root_volume_is_an_encrypted_gp3_of_the_configured_size(environment: str) -> None:
    settings = settings_of(environment)
    sizes = {one.name: one.disk_gib for one in settings.gpu_groups} | {"system": settings.system_nodes.disk_gib}
    key = graph(environment).find(tokens.KEY, "volumes")
    for one in graph(environment).of_type(tokens.LAUNCH_TEMPLATE):
        (mapping,) = one.properties["blockDeviceMappings"]
        ebs = mapping["ebs"]
        assert (ebs["volumeType"], ebs["encrypted"], ebs["volumeSize"]) == ("gp3", "true", sizes[one.name])
        assert key.urn in one.property_dependencies["blockDeviceMappings"]


@every_environment
def test_launched_resources_have_the_stack_tag(environment: str) -> None:
    name = settings_of(environment).environment.name
    for one in graph(environment).of_type(tokens.LAUNCH_TEMPLATE):
        tags = {spec["resourceType"]: spec["tags"] for spec in one.properties["tagSpecifications"]}
        assert set(tags) == {"instance", "volume", "network-interface"}
        assert {spec["stack"] for spec in tags.values()} == {f"ray-train-platform/{name}"}


@pytest.mark.parametrize(
    ("name", "capacity_type"),
    [
        ("on-demand", "ON_DEMAND"),
        ("spot", "SPOT"),
        ("reservation", "ON_DEMAND"),
        ("block", "CAPACITY_BLOCK"),
    ],
)
def test_every_kind_of_capacity_has_its_capacity_type(name: str, capacity_type: str) -> None:
    assert group(unusual(), name)["capacityType"] == capacity_type


@pytest.mark.parametrize(
    ("name", "id_"), [("reservation", RESERVED), ("reservation-efa", RESERVED_EFA), ("block", BLOCK)]
)
def test_reserved_capacity_is_the_target(name: str, id_: str) -> None:
    target = template(unusual(), name)["capacityReservationSpecification"]
    assert target == {"capacityReservationTarget": {"capacityReservationId": id_}}


def test_groups_with_reserved_capacity_are_deleted_before_they_are_replaced() -> None:
    waiting = {one.name for one in unusual().of_type(tokens.NODE_GROUP) if one.delete_before_replace}
    assert waiting == {"reservation", "reservation-efa", "reservation-placed", "block", "block-efa"}


@pytest.mark.parametrize("name", ["on-demand", "spot"])
def test_other_capacity_has_no_reservation(name: str) -> None:
    assert "capacityReservationSpecification" not in template(unusual(), name)


def test_a_capacity_block_has_instance_and_market_type_in_the_launch_template() -> None:
    assert template(unusual(), "block")["instanceType"] == "p5.48xlarge"
    assert template(unusual(), "block")["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert "instanceTypes" not in group(unusual(), "block")


@pytest.mark.parametrize("name", ["on-demand", "spot", "reservation"])
def test_other_capacity_has_the_instance_type_in_the_node_group(name: str) -> None:
    assert group(unusual(), name)["instanceTypes"] == ["p5.48xlarge"]
    assert {"instanceType", "instanceMarketOptions"} & template(unusual(), name).keys() == set()


@pytest.mark.parametrize("name", ["on-demand-efa", "spot-efa", "reservation-efa", "block-efa"])
def test_every_kind_of_capacity_can_have_efa(name: str) -> None:
    interfaces = template(unusual(), name)["networkInterfaces"]
    assert len(interfaces) == 32
    assert interfaces[0]["interfaceType"] == "efa"
    assert (interfaces[0]["networkCardIndex"], interfaces[0]["deviceIndex"]) == (0, 0)
    assert {one["interfaceType"] for one in interfaces[1:]} == {"efa-only"}
    assert [one["networkCardIndex"] for one in interfaces] == list(range(32))


def test_efa_interfaces_are_in_the_cluster_and_the_efa_security_group() -> None:
    efa = unusual().find(tokens.SECURITY_GROUP, "efa")
    found = unusual().find(tokens.LAUNCH_TEMPLATE, "on-demand-efa")
    assert efa.urn in found.property_dependencies["networkInterfaces"]
    assert {len(one["securityGroups"]) for one in found.properties["networkInterfaces"]} == {2}
    assert "vpcSecurityGroupIds" not in found.properties


def test_efa_interfaces_set_no_subnet_and_no_public_address() -> None:
    keys = {key for one in template(unusual(), "on-demand-efa")["networkInterfaces"] for key in one}
    assert keys & {"subnetId", "associatePublicIpAddress"} == set()


@pytest.mark.parametrize("name", ["on-demand", "spot", "reservation", "block"])
def test_without_efa_a_node_has_the_default_interface_in_the_cluster_security_group(name: str) -> None:
    assert "networkInterfaces" not in template(unusual(), name)
    assert len(template(unusual(), name)["vpcSecurityGroupIds"]) == 1


def test_only_configured_placement_groups_exist() -> None:
    (made,) = unusual().of_type(PLACEMENT_GROUP)
    assert (made.name, made.properties["strategy"]) == ("on-demand-placed", "cluster")
    placed = unusual().find(tokens.LAUNCH_TEMPLATE, "on-demand-placed")
    assert placed.property_dependencies["placement"] == (made.urn,)
    placements = {one.name for one in unusual().of_type(tokens.LAUNCH_TEMPLATE) if "placement" in one.properties}
    assert placements == {"on-demand-placed", "reservation-placed"}


def test_a_reservations_own_placement_group_is_used() -> None:
    assert template(unusual(), "reservation-placed")["placement"] == {"groupName": "theirs"}


def test_a_group_uses_only_the_subnets_of_its_zones() -> None:
    subnet = unusual().find(tokens.SUBNET, "private-us-east-1a")
    assert unusual().find(tokens.NODE_GROUP, "block").property_dependencies["subnetIds"] == (subnet.urn,)
    assert len(unusual().find(tokens.NODE_GROUP, "system").property_dependencies["subnetIds"]) == 3


def parts_of(user_data: str) -> list[Message]:
    message = email.message_from_bytes(b64decode(user_data))
    assert message.is_multipart()
    return [part for part in message.walk() if not part.is_multipart()]


def spec_of(user_data: str) -> Any:  # noqa: ANN401  # YAML
    (part,) = parts_of(user_data)
    assert part.get_content_type() == "application/node.eks.aws"
    document = yaml.safe_load(str(part.get_payload()))
    assert (document["apiVersion"], document["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    return document["spec"]


@pytest.mark.parametrize("has_raid0", [True, False])
def test_user_data_is_one_node_config_in_a_mime_document(*, has_raid0: bool) -> None:
    spec = spec_of(node_config(max_pods=64, has_raid0=has_raid0))
    assert spec["kubelet"] == {"config": {"maxPods": 64}}
    assert spec.get("instance") == ({"localStorage": {"strategy": "RAID0"}} if has_raid0 else None)


def test_nvme_disks_form_a_raid0_if_present_and_configured() -> None:
    assert "instance" in spec_of(template(unusual(), "on-demand")["userData"])
    assert "instance" not in spec_of(template(unusual(), "no-nvme")["userData"])
    assert "instance" not in spec_of(template(unusual(), "system")["userData"])


def test_max_pods_follows_the_subnet_size() -> None:
    specs = [spec_of(one.properties["userData"]) for one in unusual().of_type(tokens.LAUNCH_TEMPLATE)]
    assert {spec["kubelet"]["config"]["maxPods"] for spec in specs} == {40}


def autoscaler_tags(recording: Recording, name: str) -> dict[str, str]:
    urn = recording.find(tokens.NODE_GROUP, name).urn
    tags = [
        one for one in recording.of_type(tokens.ASG_TAG) if urn in one.property_dependencies["autoscalingGroupName"]
    ]
    assert not any(one.properties["tag"]["propagateAtLaunch"] for one in tags)
    return {one.properties["tag"]["key"]: one.properties["tag"]["value"] for one in tags}


def test_template_tags_describe_every_resource_of_an_empty_group() -> None:
    tags = autoscaler_tags(graph("prod"), "h100")
    assert tags == {
        f"{TEMPLATE_TAG}/label/ray-train-platform/group": "h100",
        f"{TEMPLATE_TAG}/label/ray-train-platform/gpu": "h100",
        f"{TEMPLATE_TAG}/label/k8s.amazonaws.com/accelerator": "nvidia-h100",
        f"{TEMPLATE_TAG}/label/ray-train-platform/capacity": "on_demand",
        f"{TEMPLATE_TAG}/taint/nvidia.com/gpu": "present:NoSchedule",
        f"{TEMPLATE_TAG}/resources/nvidia.com/gpu": "8",
        f"{TEMPLATE_TAG}/resources/vpc.amazonaws.com/efa": "32",
        f"{TEMPLATE_TAG}/resources/hugepages-2Mi": str(5128 * 2 * 2**20),
        f"{TEMPLATE_TAG}/resources/ephemeral-storage": str(8 * 3800 * 10**9 * 85 // 100),
    }


def test_template_tags_have_no_start_up_taint() -> None:
    assert not any(START_UP_TAINT.key in key for key in autoscaler_tags(graph("prod"), "l4"))


def test_template_tags_have_the_root_volume_if_pods_do_not_use_nvme() -> None:
    tags = autoscaler_tags(unusual(), "no-nvme")
    assert tags[f"{TEMPLATE_TAG}/resources/ephemeral-storage"] == str(200 * 2**30 * 85 // 100)


def test_template_tags_count_time_slices_of_gpus() -> None:
    assert autoscaler_tags(graph("dev"), "t4")[f"{TEMPLATE_TAG}/resources/nvidia.com/gpu"] == "4"


def test_a_node_partitions_its_gpus_before_the_kubelet_starts() -> None:
    assert mig_script("1g.10gb", slices=7).splitlines()[-1] == (
        "nvidia-smi mig --create-gpu-instance 1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb "
        "--default-compute-instance"
    )
    parts = base64.b64decode(node_config(max_pods=64, has_raid0=False, script=mig_script("1g.10gb", slices=7))).decode()
    assert parts.count("--==NODECONFIG==\n") == 2
    assert "Content-Type: text/x-shellscript\n\n#!/bin/bash\n" in parts


def test_template_tags_have_no_efa_without_efa() -> None:
    assert f"{TEMPLATE_TAG}/resources/vpc.amazonaws.com/efa" not in autoscaler_tags(graph("prod"), "l4")


def test_a_pinned_ami_release_applies_to_its_kubernetes_minor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    minor = load_release().kubernetes.version
    image = load_release().node_image.model_copy(
        update={
            "releases": {"AL2023_x86_64_NVIDIA": f"{minor}.2-20260101", "AL2023_x86_64_STANDARD": "1.20.2-20200101"}
        }
    )
    pinned = load_release().model_copy(update={"node_image": image})
    monkeypatch.setattr("infra.aws.program.load_release", lambda: pinned)
    recording = varied({})
    assert group(recording, "h100")["releaseVersion"] == f"{minor}.2-20260101"
    assert "releaseVersion" not in group(recording, "system")
    assert group(recording, "h100")["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group(recording, "system")["amiType"] == "AL2023_x86_64_STANDARD"
