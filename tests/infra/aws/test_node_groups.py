"""Node groups: capacity, placement, EFA, user data and the autoscaler's template tags."""

from __future__ import annotations

import configparser
import email
import subprocess
from base64 import b64decode
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.aws.user_data import TEMPLATE_TAG
from infra.policy import tokens
from infra.preview.recording import Recording
from infra.spec.catalog import load_catalog
from infra.spec.node_group import NodeGroup, NodeGroups, ZoneGroup, resolve_node_groups
from infra.spec.node_labels import HEAD_TAINT, START_UP_TAINT
from infra.spec.outputs import gpu_group_output
from infra.spec.release import load_release
from infra.spec.sharing import sharing_labels
from tests.infra.aws.graphs import BLOCK, ENVIRONMENTS, RESERVED, RESERVED_EFA, graph, settings_of, unusual, varied

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
EFFECTS = {"NO_SCHEDULE": "NoSchedule"}


def resolved(environment: str) -> NodeGroups:
    """The node groups of one of `ENVIRONMENTS`."""
    return resolve_node_groups(settings_of(environment), catalog=load_catalog())


def gpu_zone_groups(environment: str) -> list[tuple[NodeGroup, ZoneGroup]]:
    """Each GPU group with each of its zone groups."""
    return [(one, part) for one in resolved(environment).gpu for part in one.zone_groups]


def zone_group(name: str) -> str:
    """Name of the managed node group of one of the unusual groups."""
    return "block-00000004" if name == "block" else name


def template(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.LAUNCH_TEMPLATE, name).properties


def group(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.NODE_GROUP, name).properties


@every_environment
def test_each_group_has_one_launch_template_for_its_zone_groups(environment: str) -> None:
    recording = graph(environment)
    groups = {one.name: one for one in resolved(environment).all()}
    assert {one.name for one in recording.of_type(tokens.LAUNCH_TEMPLATE)} == set(groups)
    made = {one.name: one for one in recording.of_type(tokens.NODE_GROUP)}
    assert set(made) == {part.name for one in groups.values() for part in one.zone_groups}
    for name, one in groups.items():
        template = recording.find(tokens.LAUNCH_TEMPLATE, name).urn
        for part in one.zone_groups:
            assert made[part.name].property_dependencies["launchTemplate"] == (template,)
            assert made[part.name].properties["launchTemplate"]["version"] == "1"


@every_environment
def test_no_auto_scaling_group_spans_zones_so_that_none_is_rebalanced(environment: str) -> None:
    """EC2 Auto Scaling ends instances of a full zone to balance zones, and asks no PodDisruptionBudget."""
    for one in graph(environment).of_type(tokens.NODE_GROUP):
        assert len(one.property_dependencies["subnetIds"]) == 1


@every_environment
def test_every_zone_has_a_system_node_for_the_volumes_that_are_in_it(environment: str) -> None:
    system = [one for one in graph(environment).of_type(tokens.NODE_GROUP) if one.name.startswith("system-")]
    subnets = {urn for one in system for urn in one.property_dependencies["subnetIds"]}
    assert len(subnets) == len(settings_of(environment).network.availability_zones)
    assert min(one.properties["scalingConfig"]["minSize"] for one in system) >= 1


@every_environment
def test_sizes_updates_and_repair_follow_the_settings(environment: str) -> None:
    for wanted, part in gpu_zone_groups(environment):
        found = group(graph(environment), part.name)
        assert found["scalingConfig"] == {
            "minSize": part.min_size,
            "desiredSize": part.desired_size,
            "maxSize": part.max_size,
        }
        assert found["updateConfig"] == {"maxUnavailablePercentage": wanted.update_percent}
        assert found["nodeRepairConfig"] == {"enabled": wanted.is_repaired}


@every_environment
def test_no_update_is_forced_so_a_pod_that_refuses_eviction_fails_it(environment: str) -> None:
    """A forced one deletes such pods after 15 minutes (EKS user guide, "Understand each phase of node updates")."""
    for one in graph(environment).of_type(tokens.NODE_GROUP):
        assert not one.properties.get("forceUpdateVersion"), one.name


@every_environment
def test_changes_of_the_desired_size_are_ignored(environment: str) -> None:
    groups = graph(environment).of_type(tokens.NODE_GROUP)
    assert {one.ignore_changes for one in groups} == {("scalingConfig.desiredSize",)}


@every_environment
def test_labels_and_permanent_taints_equal_the_outputs(environment: str) -> None:
    for wanted, part in gpu_zone_groups(environment):
        promised = gpu_group_output(wanted)
        found = group(graph(environment), part.name)
        lasting = [
            (taint["key"], taint["value"], EFFECTS[taint["effect"]])
            for taint in found["taints"]
            if taint["key"] != START_UP_TAINT.key
        ]
        assert found["labels"] == promised.labels | sharing_labels(wanted.sharing)
        assert lasting == [(taint.key, taint.value, taint.effect) for taint in promised.taints]


@every_environment
def test_gpu_nodes_start_with_a_taint_that_no_job_tolerates(environment: str) -> None:
    for _, part in gpu_zone_groups(environment):
        found = group(graph(environment), part.name)
        assert START_UP_TAINT.key in {taint["key"] for taint in found["taints"]}
    outputs = graph(environment).outputs["gpu_groups"]
    assert START_UP_TAINT.key not in {taint["key"] for one in outputs for taint in one["taints"]}


@every_environment
def test_only_pods_that_ask_for_them_run_on_head_nodes_and_any_on_system_nodes(environment: str) -> None:
    zone = settings_of(environment).network.availability_zones[0]
    assert group(graph(environment), f"system-{zone}").get("taints", []) == []
    taint = {"key": HEAD_TAINT.key, "value": "true", "effect": "NO_SCHEDULE"}
    assert group(graph(environment), f"heads-{zone}")["taints"] == [taint]


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
    sizes = {one.name: one.disk_gib for one in settings.gpu_groups}
    sizes |= {"system": settings.system_nodes.disk_gib, "heads": settings.head_nodes.disk_gib}
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
    assert group(unusual(), zone_group(name))["capacityType"] == capacity_type


@pytest.mark.parametrize(
    ("name", "id_"), [("reservation", RESERVED), ("reservation-efa", RESERVED_EFA), ("block", BLOCK)]
)
def test_reserved_capacity_is_the_target(name: str, id_: str) -> None:
    target = template(unusual(), name)["capacityReservationSpecification"]
    assert target == {"capacityReservationTarget": {"capacityReservationId": id_}}


def test_groups_with_reserved_capacity_are_deleted_before_they_are_replaced() -> None:
    waiting = {one.name for one in unusual().of_type(tokens.NODE_GROUP) if one.delete_before_replace}
    reserved = {"reservation", "reservation-efa", "reservation-placed"}
    assert waiting == {*reserved, "block-00000004", "block-efa-00000005"}


def test_only_reserved_capacity_is_updated_by_ending_instances_first() -> None:
    made = {one.name: one.properties["updateConfig"] for one in unusual().of_type(tokens.NODE_GROUP)}
    minimal = {name for name, update in made.items() if update.get("updateStrategy") == "MINIMAL"}
    reserved = {"reservation", "reservation-efa", "reservation-placed"}
    assert minimal == {*reserved, "block-00000004", "block-efa-00000005"}


def test_the_nodes_of_a_capacity_block_are_not_updated() -> None:
    """EKS refuses to update a block with nodes."""
    for one in unusual().of_type(tokens.NODE_GROUP):
        kept = {"launchTemplate", "releaseVersion", "version"} & set(one.ignore_changes)
        assert len(kept) == (3 if one.name.startswith("block") else 0)


@pytest.mark.parametrize("name", ["on-demand", "spot"])
def test_other_capacity_has_no_reservation(name: str) -> None:
    assert "capacityReservationSpecification" not in template(unusual(), name)


def test_a_capacity_block_has_instance_and_market_type_in_the_launch_template() -> None:
    assert template(unusual(), "block")["instanceType"] == "p5.48xlarge"
    assert template(unusual(), "block")["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert "instanceTypes" not in group(unusual(), zone_group("block"))


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
    assert unusual().find(tokens.NODE_GROUP, "block-00000004").property_dependencies["subnetIds"] == (subnet.urn,)


def parts_of(user_data: str) -> list[Message]:
    message = email.message_from_bytes(b64decode(user_data))
    assert message.is_multipart()
    return [part for part in message.walk() if not part.is_multipart()]


def spec_of(user_data: str) -> Any:  # noqa: ANN401  # YAML
    """The spec of the NodeConfig; empty if there is none."""
    kinds = [part for part in parts_of(user_data) if part.get_content_type() == "application/node.eks.aws"]
    if not kinds:
        return {}
    (part,) = kinds
    document = yaml.safe_load(str(part.get_payload()))
    assert (document["apiVersion"], document["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    return document["spec"]


def run_scripts(user_data: str, root: Path) -> str:
    """Run the shell scripts as cloud-init does, with `root` in place of /, and doubles of systemctl and nvidia-smi.

    Returns:
        the commands that the doubles were called with, one a line.
    """
    calls, programs = root / "calls", root / "bin"
    programs.mkdir()
    for name in ("systemctl", "nvidia-smi"):
        (programs / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {calls}\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    for folder in ("etc/eks/nodeadm.d", "etc/systemd/system", "usr/local/sbin"):
        (root / folder).mkdir(parents=True)
    calls.touch()
    for part in parts_of(user_data):
        if part.get_content_type() == "text/x-shellscript":
            script = str(part.get_payload())
            assert script.startswith("#!/bin/bash\n")
            for folder in ("/etc/", "/usr/local/"):
                script = script.replace(folder, f"{root}{folder}")
            path = f"{programs}:/usr/bin:/bin"
            subprocess.run(["bash", "-c", script], check=True, env={"PATH": path})
    return calls.read_text(encoding="utf-8")


def test_nvme_disks_form_a_raid0_if_present_and_configured() -> None:
    assert spec_of(template(unusual(), "on-demand")["userData"])["instance"] == {"localStorage": {"strategy": "RAID0"}}
    assert "instance" not in spec_of(template(unusual(), "no-nvme")["userData"])
    assert "instance" not in spec_of(template(unusual(), "system")["userData"])


def test_max_pods_is_set_in_a_file_that_nodeadm_reads_after_ekss_own_configuration(tmp_path: Path) -> None:
    """EKS appends its NodeConfig to the user data and overrides maxPods there."""
    for index, one in enumerate(unusual().of_type(tokens.LAUNCH_TEMPLATE)):
        root = tmp_path / str(index)
        root.mkdir()
        run_scripts(one.properties["userData"], root)
        [file] = (root / "etc/eks/nodeadm.d").iterdir()
        assert file.suffix == ".yaml"
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert (document["apiVersion"], document["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
        assert document["spec"] == {"kubelet": {"config": {"maxPods": 40}}}


def test_pods_of_efa_nodes_may_lock_any_amount_of_memory() -> None:
    """EFA registers memory, which a process without CAP_IPC_LOCK may lock up to RLIMIT_MEMLOCK, by default 8 MiB."""
    process = spec_of(template(unusual(), "on-demand-efa")["userData"])["containerd"]["baseRuntimeSpec"]["process"]
    limits = {one["type"]: (one["soft"], one["hard"]) for one in process["rlimits"]}
    assert limits["RLIMIT_NOFILE"] == (65536, 1048576)
    soft, hard = limits["RLIMIT_MEMLOCK"]
    assert soft == hard >= 2**41
    # nodeadm passes the number through a float.
    assert int(float(soft)) == soft < 2**63
    assert "containerd" not in spec_of(template(unusual(), "on-demand")["userData"])


def test_a_node_partitions_its_gpus_at_every_boot_before_the_kubelet_starts(tmp_path: Path) -> None:
    """The script of the user data runs once in an instance's life; MIG slices do not survive a reboot."""
    recording = varied({"gpu_groups.1.sharing": {"mig_profile": "1g.10gb"}, "gpu_groups.1.efa": False})
    called = run_scripts(template(recording, "h100")["userData"], tmp_path)
    assert called.splitlines() == ["systemctl daemon-reload", "systemctl enable --now mig.service"]
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(tmp_path / "etc/systemd/system/mig.service")
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert {"kubelet.service", "nodeadm-run.service"} <= set(unit["Unit"]["Before"].split())
    assert "nvidia-kmod-load.service" in unit["Unit"]["After"].split()
    subprocess.run([unit["Service"]["ExecStart"]], check=True, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[-1] == (
        f"nvidia-smi mig --create-gpu-instance {','.join(['1g.10gb'] * 7)} --default-compute-instance"
    )


@every_environment
def test_the_volume_and_the_user_data_agree_on_how_images_are_pulled(environment: str) -> None:
    for one in resolved(environment).all():
        made = template(graph(environment), one.name)
        [mapping] = made["blockDeviceMappings"]
        assert mapping["ebs"].get("throughput", 125) == one.disk_throughput_mib
        gates = spec_of(made["userData"]).get("featureGates")
        assert gates == ({"FastImagePull": True} if one.pulls_in_parallel else None)


def test_a_spot_group_lists_its_types_smallest_first_because_the_autoscaler_looks_at_the_first() -> None:
    capacity = {"kind": "spot", "instance_types": ["g5.2xlarge"]}
    changes = {"gpu_groups.0.instance_type": "g5.xlarge", "gpu_groups.0.capacity": capacity}
    assert group(varied(changes), "t4-us-east-1a")["instanceTypes"] == ["g5.xlarge", "g5.2xlarge"]


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
    assert not any(START_UP_TAINT.key in key for key in autoscaler_tags(graph("prod"), "l4-us-east-1c"))


def test_template_tags_have_the_root_volume_if_pods_do_not_use_nvme() -> None:
    tags = autoscaler_tags(unusual(), "no-nvme")
    assert tags[f"{TEMPLATE_TAG}/resources/ephemeral-storage"] == str(200 * 2**30 * 85 // 100)


def test_template_tags_count_time_slices_of_gpus() -> None:
    assert autoscaler_tags(graph("dev"), "t4-us-east-1b")[f"{TEMPLATE_TAG}/resources/nvidia.com/gpu"] == "4"


def test_template_tags_have_no_efa_without_efa() -> None:
    assert f"{TEMPLATE_TAG}/resources/vpc.amazonaws.com/efa" not in autoscaler_tags(graph("prod"), "l4-us-east-1c")


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
    assert "releaseVersion" not in group(recording, "system-us-east-1a")
    assert group(recording, "h100")["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group(recording, "system-us-east-1a")["amiType"] == "AL2023_x86_64_STANDARD"
