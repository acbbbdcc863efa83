"""Node groups as far as they depend on the settings: capacity, placement, EFA, user data, template tags."""

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
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import START_UP_TAINT
from infra.spec.outputs import gpu_group_output
from infra.spec.release import load_release
from infra.spec.sharing import sharing_labels
from tests.infra.aws.graphs import BLOCK, ENVIRONMENTS, RESERVED, RESERVED_EFA, graph, settings_of, unusual, varied

PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
EFFECTS = {"NO_SCHEDULE": "NoSchedule"}


def template(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.LAUNCH_TEMPLATE, name).properties


def group(recording: Recording, name: str) -> dict[str, Any]:
    return recording.find(tokens.NODE_GROUP, name).properties


def test_labels_and_permanent_taints_equal_the_outputs_and_no_job_tolerates_the_start_up_taint() -> None:
    for environment in ENVIRONMENTS:
        recording = graph(environment)
        for wanted in resolve_node_groups(settings_of(environment), catalog=load_catalog()).gpu:
            promised = gpu_group_output(wanted)
            assert START_UP_TAINT.key not in {taint.key for taint in promised.taints}
            for part in wanted.zone_groups:
                found = group(recording, part.name)
                taints = {taint["key"]: (taint["value"], EFFECTS[taint["effect"]]) for taint in found["taints"]}
                assert found["labels"] == promised.labels | sharing_labels(wanted.sharing)
                assert taints.pop(START_UP_TAINT.key, None) is not None
                assert taints == {taint.key: (taint.value, taint.effect) for taint in promised.taints}


def test_each_kind_of_capacity_is_bought_as_aws_wants_it() -> None:
    """A block has its instance type and market in the launch template, all others in the node group."""
    targets = {"reservation": RESERVED, "reservation-efa": RESERVED_EFA, "block": BLOCK}
    for name, managed, kind in (
        ("on-demand", "on-demand", "ON_DEMAND"),
        ("spot", "spot", "SPOT"),
        ("reservation", "reservation", "ON_DEMAND"),
        ("reservation-efa", "reservation-efa", "ON_DEMAND"),
        ("block", "block-00000004", "CAPACITY_BLOCK"),
    ):
        launched, made = template(unusual(), name), group(unusual(), managed)
        assert made["capacityType"] == kind, name
        target = {"capacityReservationTarget": {"capacityReservationId": targets.get(name)}}
        assert launched.get("capacityReservationSpecification") == (target if name in targets else None), name
        is_block = kind == "CAPACITY_BLOCK"
        assert launched.get("instanceType") == ("p5.48xlarge" if is_block else None), name
        assert launched.get("instanceMarketOptions") == ({"marketType": "capacity-block"} if is_block else None), name
        assert made.get("instanceTypes") == (None if is_block else ["p5.48xlarge"]), name


def test_reserved_capacity_is_freed_before_it_is_used_again() -> None:
    """Its groups are deleted first, and their instances ended first; EKS refuses to update a block with nodes."""
    blocks = {"block-00000004", "block-efa-00000005"}
    reserved = {"reservation", "reservation-efa", "reservation-placed", *blocks}
    made = unusual().of_type(tokens.NODE_GROUP)
    assert {one.name for one in made if one.delete_before_replace} == reserved
    assert {one.name for one in made if one.properties["updateConfig"].get("updateStrategy") == "MINIMAL"} == reserved
    for one in made:
        kept = {"launchTemplate", "releaseVersion", "version"} & set(one.ignore_changes)
        assert len(kept) == (3 if one.name in blocks else 0), one.name


def test_every_kind_of_capacity_can_have_efa_in_the_cluster_and_the_efa_security_group() -> None:
    efa = unusual().find(tokens.SECURITY_GROUP, "efa")
    for name in ("on-demand-efa", "spot-efa", "reservation-efa", "block-efa"):
        found = unusual().find(tokens.LAUNCH_TEMPLATE, name)
        interfaces = found.properties["networkInterfaces"]
        assert [one["networkCardIndex"] for one in interfaces] == list(range(32))
        assert [one["interfaceType"] for one in interfaces] == ["efa", *["efa-only"] * 31]
        assert interfaces[0]["deviceIndex"] == 0
        assert {len(one["securityGroups"]) for one in interfaces} == {2}
        assert efa.urn in found.property_dependencies["networkInterfaces"]
        assert {key for one in interfaces for key in one} & {"subnetId", "associatePublicIpAddress"} == set()
        assert "vpcSecurityGroupIds" not in found.properties
    for name in ("on-demand", "spot", "reservation", "block"):
        assert "networkInterfaces" not in template(unusual(), name)
        assert len(template(unusual(), name)["vpcSecurityGroupIds"]) == 1


def test_only_configured_placement_groups_exist_and_that_of_a_reservation_is_used() -> None:
    (made,) = unusual().of_type(PLACEMENT_GROUP)
    assert (made.name, made.properties["strategy"]) == ("on-demand-placed", "cluster")
    placed = unusual().find(tokens.LAUNCH_TEMPLATE, "on-demand-placed")
    assert placed.property_dependencies["placement"] == (made.urn,)
    placements = {one.name for one in unusual().of_type(tokens.LAUNCH_TEMPLATE) if "placement" in one.properties}
    assert placements == {"on-demand-placed", "reservation-placed"}
    assert template(unusual(), "reservation-placed")["placement"] == {"groupName": "theirs"}


def parts_of(user_data: str) -> list[Message]:
    message = email.message_from_bytes(b64decode(user_data))
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
    called = (tmp_path / "calls").read_text(encoding="utf-8")
    slices = ",".join(["1g.10gb"] * 7)
    assert called.endswith(f"\nnvidia-smi mig --create-gpu-instance {slices} --default-compute-instance\n")


def test_a_spot_group_lists_its_types_smallest_first_because_the_autoscaler_looks_at_the_first() -> None:
    capacity = {"kind": "spot", "instance_types": ["g5.2xlarge"]}
    changes = {"gpu_groups.0.instance_type": "g5.xlarge", "gpu_groups.0.capacity": capacity}
    assert group(varied(changes), "t4-us-east-1a")["instanceTypes"] == ["g5.xlarge", "g5.2xlarge"]


def test_template_tags_have_the_root_volume_if_pods_do_not_use_nvme() -> None:
    urn = unusual().find(tokens.NODE_GROUP, "no-nvme").urn
    made = unusual().of_type(tokens.ASG_TAG)
    tags = [one.properties["tag"] for one in made if urn in one.property_dependencies["autoscalingGroupName"]]
    assert not any(one["propagateAtLaunch"] for one in tags)
    values = {one["key"]: one["value"] for one in tags}
    assert values[f"{TEMPLATE_TAG}/resources/ephemeral-storage"] == str(200 * 2**30 * 85 // 100)


def test_a_pinned_ami_release_applies_to_its_kubernetes_minor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    minor = load_release().kubernetes.version
    pins = {"AL2023_x86_64_NVIDIA": f"{minor}.2-20260101", "AL2023_x86_64_STANDARD": "1.20.2-20200101"}
    image = load_release().node_image.model_copy(update={"releases": pins})
    pinned = load_release().model_copy(update={"node_image": image})
    monkeypatch.setattr("infra.aws.program.load_release", lambda: pinned)
    recording = varied({})
    assert group(recording, "h100")["releaseVersion"] == f"{minor}.2-20260101"
    assert "releaseVersion" not in group(recording, "system-us-east-1a")
    assert group(recording, "h100")["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group(recording, "system-us-east-1a")["amiType"] == "AL2023_x86_64_STANDARD"
