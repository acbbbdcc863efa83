"""Launcher files: what they say, that Ray accepts them, and what is refused before."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release_rules import ROOT
from tests.training.cli.command import ask
from tests.training.cluster.team_cluster import dev_outputs
from tests.training.cluster.team_cluster import target as dev_stack
from tests.training.vms.clusters import AMI, aws_file, own_cluster, own_file
from training.vms.clusters import NodeRange, split_hosts, split_profiles
from training.vms.machine import file_mounts
from training.vms.place import METADATA_KEY, RunPlace, read_place
from training.vms.ray_check import check


def _nodes(document: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = document["available_node_types"][kind]["node_config"]
    return found


@pytest.mark.parametrize("document", [aws_file(), aws_file(is_spot=True, group="t4"), own_file()])
def test_ray_accepts_a_file_and_keeps_what_it_says(document: dict[str, Any]) -> None:
    prepared = check(document)
    for field in ("cluster_name", "provider", "auth", "file_mounts", "metadata"):
        assert prepared[field] == document[field]
    assert prepared["head_setup_commands"] == document["setup_commands"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"max_workers": -1}, "max_workers"),
        ({"auth": {"ssh_user": 3}}, "auth.ssh_user"),
        ({"provider": {"type": "local", "head_ip": "10.0.0.1"}}, "worker_ips"),
        ({"provider": {"type": "local", "head_ip": 1, "worker_ips": []}}, "provider.head_ip"),
    ],
)
def test_ray_refuses_a_file_with_a_wrong_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        check({**own_file(), **change})


def test_ray_refuses_more_fewest_workers_than_most() -> None:
    document = aws_file()
    document["max_workers"] = 0
    with pytest.raises(SettingsError, match="min_workers"):
        check(document)


def test_workers_in_ec2_have_the_group_s_type_and_the_asked_range() -> None:
    document = aws_file(workers=NodeRange(1, 3))
    worker = document["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"], document["max_workers"]) == (1, 3, 3)
    assert worker["resources"] == {"CPU": 48, "GPU": 4}
    assert _nodes(document, "worker")["InstanceType"] == "g5.12xlarge"
    assert document["available_node_types"]["head"]["resources"] == {"CPU": 0}


@pytest.mark.parametrize(
    ("group", "is_asked", "is_spot"), [("a10g", False, False), ("a10g", True, True), ("t4", False, True)]
)
def test_workers_are_spot_where_asked_or_where_the_group_is(group: str, is_asked: bool, is_spot: bool) -> None:  # noqa: FBT001
    document = aws_file(group=group, is_spot=is_asked)
    assert (_nodes(document, "worker").get("InstanceMarketOptions") == {"MarketType": "spot"}) is is_spot
    assert "InstanceMarketOptions" not in _nodes(document, "head")


def test_machines_in_ec2_are_private_encrypted_and_have_a_role_each() -> None:
    document, network = aws_file(), dev_stack().outputs.network
    assert network is not None
    assert document["provider"]["use_internal_ips"] is True
    for kind, profile in (("head", "ray-head"), ("worker", "ray-worker")):
        node = _nodes(document, kind)
        assert node["SubnetIds"] == list(network.private_subnets)
        assert node["SecurityGroupIds"] == [network.node_security_group]
        assert node["IamInstanceProfile"] == {"Name": profile}
        assert node["MetadataOptions"]["HttpTokens"] == "required"
        assert all(disk["Ebs"]["Encrypted"] for disk in node["BlockDeviceMappings"])
        assert "KeyName" not in node


def test_a_file_holds_no_key_and_no_token(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    text = yaml.safe_dump_all([aws_file(), own_file(ssh_key=key)])
    assert "PRIVATE KEY" not in text
    assert "RAY_AUTH_TOKEN=" not in text


def test_mounted_parts_exist_and_leave_the_environment_out() -> None:
    place = RunPlace.model_validate(own_file()["metadata"][METADATA_KEY])
    mounted = [Path(local) for local in file_mounts(place).values() if local != place.token_file]
    assert all(one.exists() and one.is_relative_to(ROOT) for one in mounted)
    assert {".venv", ".local", ".git"}.isdisjoint(one.name for one in mounted)


def test_jobs_in_ec2_use_the_team_s_runs_and_part_of_the_bucket() -> None:
    place = RunPlace.model_validate(aws_file()["metadata"][METADATA_KEY])
    outputs = dev_stack().outputs
    assert place.checkpoint_remote == f"s3://{outputs.storage.checkpoint_bucket}/research"
    assert place.checkpoint_owner == outputs.account
    mounts = " ".join(aws_file()["initialization_commands"])
    assert f"accesspoint={outputs.teams[0].efs_access_point} {outputs.storage.efs_id}:/ /mnt/runs" in mounts


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("http://mlflow.mlflow.svc.cluster.local:5000", "sqlite:////mnt/runs/mlflow.db"),
        ("https://mlflow.example.org", "https://mlflow.example.org"),
    ],
)
def test_machines_use_the_stack_s_mlflow_if_they_reach_it(uri: str, kept: str) -> None:
    place = RunPlace.model_validate(aws_file(dev_stack(mlflow_uri=uri))["metadata"][METADATA_KEY])
    assert place.tracking_uri == kept


@pytest.mark.parametrize("output", ["network", "head_instance_type"])
def test_a_stack_that_does_not_say_enough_is_refused(output: str) -> None:
    with pytest.raises(RefusedError, match="make up ENV=dev"):
        aws_file(dev_stack(**{output: None}))


def test_a_capacity_block_is_refused() -> None:
    groups = [{**one, "capacity_type": "CAPACITY_BLOCK"} for one in dev_outputs()["gpu_groups"]]
    with pytest.raises(RefusedError, match="group=a10g is a Capacity Block"):
        aws_file(dev_stack(gpu_groups=groups))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "Ray"}, "name='Ray'"),
        ({"ami": "ubuntu"}, "aws ssm get-parameter"),
        ({"head_profile": "arn:aws:iam::1:instance-profile/x"}, "not ARNs"),
        ({"ssh_user": "root user"}, "SSH_USER"),
        ({"group": "a10"}, "a10g"),
        ({"group": None}, "GROUP="),
    ],
)
def test_wrong_machines_in_ec2_are_refused_with_a_remedy(change: dict[str, Any], named: str) -> None:
    with pytest.raises(PlatformError) as refused:
        aws_file(**change)
    assert named in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"workers": ("10.0.0.1",)}, "10.0.0.1 is there twice"),
        ({"workers": ("me@10.0.0.2",)}, "SSH_USER"),
        ({"workers": ("10.0.0.2,10.0.0.3",)}, "separated by spaces"),
        ({"workers": ("fd00::2",)}, "IPv4"),
        ({"runs": Path("runs")}, "must be an absolute path"),
        ({"runs": Path("/nfs/100%")}, "contains %"),
        ({"ssh_key": Path("/nonexistent")}, "no such file"),
    ],
)
def test_wrong_machines_of_one_s_own_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        own_cluster(**change)
    assert named in f"{refused.value}; {refused.value.remedy}"


def test_a_public_key_is_refused_with_the_private_one_s_name(tmp_path: Path) -> None:
    public = tmp_path / "id.pub"
    public.touch()
    with pytest.raises(SettingsError) as refused:
        own_cluster(ssh_key=public)
    assert refused.value.remedy is not None
    assert refused.value.remedy.endswith(str(tmp_path / "id"))


def test_a_folder_with_a_space_reaches_the_machines_shell_as_one_word() -> None:
    commands = own_file(runs=Path("/nfs/my runs"))["initialization_commands"]
    assert [shlex.split(command) for command in commands] == [["test", "-w", "/nfs/my runs"]]


@given(fewest=st.integers(0, 50), most=st.integers(0, 50))
def test_a_range_of_workers_is_ascending_and_not_empty(fewest: int, most: int) -> None:
    if fewest <= most and most:
        assert NodeRange.parse(f"{fewest}-{most}") == NodeRange(fewest, most)
    else:
        with pytest.raises(SettingsError):
            NodeRange.parse(f"{fewest}-{most}")


@pytest.mark.parametrize("text", ["", "two", "1-", "-1", "1-2-3"])
def test_other_texts_are_no_range(text: str) -> None:
    with pytest.raises(SettingsError, match="write 4, or 0-4"):
        NodeRange.parse(text)


def test_a_head_alone_is_no_cluster() -> None:
    with pytest.raises(SettingsError, match="at least one worker"):
        split_hosts(["10.0.0.1"])


def test_one_profile_is_that_of_all_machines() -> None:
    assert split_profiles("ray") == ("ray", "ray")
    assert split_profiles("head,workers") == ("head", "workers")


def test_a_third_profile_is_refused() -> None:
    with pytest.raises(SettingsError, match="3 instance profiles"):
        split_profiles("head,workers,others")


def test_the_command_writes_a_file_that_jobs_can_read(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs.json"
    outputs.write_text(json.dumps(dev_outputs()))
    out = tmp_path / "cluster.yaml"
    name = f"test-{os.getpid()}"
    token = ROOT / ".local" / "clusters" / f"{name}.token"
    options = ["--env", "dev", "--outputs", str(outputs), "--team", "research", "--group", "t4", "--name", name]
    try:
        answer = ask("ray-cluster", *options, "--profile", "ray", "--ami", AMI, "--workers", "0-2", "--out", str(out))
        assert answer.status == 0, answer.err
        assert "Ray accepts it" in answer.out
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert token.read_text() not in out.read_text()
        place = read_place(out, platform=dev_stack().release.platform)
        assert place.token_file == str(token)
    finally:
        token.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), 'HOSTS="HEAD WORKER …"'),
        (("--env", "dev"), "PROFILE=HEAD,WORKERS"),
        (("--env", "dev", "--profile", "ray"), "AMI=ami-"),
        (("--host", "a", "--host", "b"), "RUNS=/nfs/runs"),
        (("--host", "a", "--host", "b", "--runs", "/nfs"), "SSH_USER"),
        (("--host", "a", "--host", "b", "--spot"), "--spot"),
        (("--host", "a", "--host", "b", "--team", "research"), "--team"),
        (("--env", "dev", "--runs", "/nfs"), "--runs"),
    ],
)
def test_the_command_refuses_without_importing_ray(options: tuple[str, ...], named: str) -> None:
    answer = ask("ray-cluster", *options)
    assert answer.status == 2
    assert named in answer.err
    assert not answer.heavy


def test_a_file_of_another_release_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(own_file()))
    with pytest.raises(SettingsError, match=r"this checkout is 9\.9\.9"):
        read_place(file, platform="9.9.9")


@pytest.mark.parametrize("text", ["cluster_name: mine\n", "metadata: [1]\n", "metadata: {ray-train-platform: 3}\n"])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match="make ray-cluster"):
        read_place(file, platform="0.1.0")


def test_a_folder_that_a_shell_would_take_for_more_than_a_path_is_refused(tmp_path: Path) -> None:
    document = own_file()
    document["metadata"][METADATA_KEY]["home"] = "~/lab; reboot"
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(SettingsError, match="home"):
        read_place(file, platform=dev_stack().release.platform)


def test_aws_clusters_of_two_names_share_nothing_on_a_machine() -> None:
    first, second = (aws_file(name=name)["file_mounts"] for name in ("one", "two"))
    assert set(first).isdisjoint(second)
