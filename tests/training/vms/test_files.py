"""Launcher files: what they say, that Ray accepts them, and what is refused before; the make targets of their clusters."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release_rules import ROOT
from tests.makefile import command, make
from tests.training.cli.command import ask, assert_refused
from tests.training.cluster.team_cluster import dev_outputs, outputs_file
from tests.training.cluster.team_cluster import target as dev_stack
from tests.training.vms.clusters import AMI, aws_file, own_cluster, own_file
from training.vms.clusters import NodeRange, split_hosts, split_profiles
from training.vms.machine import file_mounts
from training.vms.place import METADATA_KEY, RunPlace, read_place
from training.vms.ray_check import check


def _nodes(document: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = document["available_node_types"][kind]["node_config"]
    return found


def test_ray_accepts_a_file_and_keeps_what_it_says() -> None:
    for document in (aws_file(), aws_file(is_spot=True, group="t4"), own_file()):
        prepared = check(document)
        for field in ("cluster_name", "provider", "auth", "file_mounts", "metadata"):
            assert prepared[field] == document[field]
        assert prepared["head_setup_commands"] == document["setup_commands"]


def test_ray_refuses_a_file_with_a_wrong_field() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"nonsense": 1}, "nonsense"),
        ({"auth": {"ssh_user": 3}}, "auth.ssh_user"),
        ({"provider": {"type": "local", "head_ip": "10.0.0.1"}}, "worker_ips"),
        ({"provider": {"type": "local", "head_ip": 1, "worker_ips": []}}, "provider.head_ip"),
    ]
    for document, named in (*(({**own_file(), **one}, named) for one, named in changes),
                            ({**aws_file(), "max_workers": 0}, "min_workers")):  # fmt: skip
        with pytest.raises(SettingsError, match=named):
            check(document)


def test_workers_in_ec2_have_the_group_s_type_the_asked_range_and_are_spot_where_asked_or_where_the_group_is() -> None:
    document = aws_file(workers=NodeRange(1, 3))
    worker = document["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"], document["max_workers"]) == (1, 3, 3)
    assert worker["resources"] == {"CPU": 48, "GPU": 4}
    assert _nodes(document, "worker")["InstanceType"] == "g5.12xlarge"
    assert document["available_node_types"]["head"]["resources"] == {"CPU": 0}
    for group, is_asked, is_spot in (("a10g", False, False), ("a10g", True, True), ("t4", False, True)):
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


def test_jobs_in_ec2_use_the_team_s_runs_and_part_of_the_bucket_and_mlflow_if_they_reach_it() -> None:
    place = RunPlace.model_validate(aws_file()["metadata"][METADATA_KEY])
    outputs = dev_stack().outputs
    assert place.checkpoint_remote == f"s3://{outputs.storage.checkpoint_bucket}/research"
    assert place.checkpoint_owner == outputs.account
    mounts = " ".join(aws_file()["initialization_commands"])
    assert f"accesspoint={outputs.teams[0].efs_access_point} {outputs.storage.efs_id}:/ /mnt/runs" in mounts
    for uri, kept in (
        ("http://mlflow.mlflow.svc.cluster.local:5000", "sqlite:////mnt/runs/mlflow.db"),
        ("https://mlflow.example.org", "https://mlflow.example.org"),
    ):
        place = RunPlace.model_validate(aws_file(dev_stack(mlflow_uri=uri))["metadata"][METADATA_KEY])
        assert place.tracking_uri == kept


def test_a_stack_that_does_not_say_enough_and_a_capacity_block_are_refused() -> None:
    blocks = [{**one, "capacity_type": "CAPACITY_BLOCK"} for one in dev_outputs()["gpu_groups"]]
    for changes, said in (
        ({"network": None}, "make up ENV=dev"),
        ({"head_instance_type": None}, "make up ENV=dev"),
        ({"gpu_groups": blocks}, "group=a10g is a Capacity Block"),
    ):
        with pytest.raises(RefusedError, match=said):
            aws_file(dev_stack(**changes))


def test_wrong_machines_are_refused_with_a_remedy(tmp_path: Path) -> None:
    public = tmp_path / "id.pub"
    public.touch()
    cases: list[tuple[Callable[..., object], dict[str, Any], str]] = [
        (aws_file, {"name": "Ray"}, "name='Ray'"),
        (aws_file, {"ami": "ubuntu"}, "aws ssm get-parameter"),
        (aws_file, {"head_profile": "arn:aws:iam::1:instance-profile/x"}, "not ARNs"),
        (aws_file, {"ssh_user": "root user"}, "SSH_USER"),
        (aws_file, {"group": "a10"}, "a10g"),
        (aws_file, {"group": None}, "GROUP="),
        (own_cluster, {"workers": ("10.0.0.1",)}, "10.0.0.1 is there twice"),
        (own_cluster, {"workers": ("me@10.0.0.2",)}, "SSH_USER"),
        (own_cluster, {"workers": ("10.0.0.2,10.0.0.3",)}, "separated by spaces"),
        (own_cluster, {"workers": ("fd00::2",)}, "IPv4"),
        (own_cluster, {"runs": Path("runs")}, "must be an absolute path"),
        (own_cluster, {"runs": Path("/nfs/100%")}, "contains %"),
        (own_cluster, {"ssh_key": Path("/nonexistent")}, "no such file"),
    ]
    for made, change, named in cases:
        with pytest.raises(SettingsError if made is own_cluster else PlatformError) as refused:
            made(**change)
        assert named in f"{refused.value}; {refused.value.remedy}", change
    with pytest.raises(SettingsError) as refused:
        own_cluster(ssh_key=public)
    assert str(refused.value.remedy).endswith(str(tmp_path / "id")), "the private key"


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


def test_texts_that_are_no_range_no_cluster_and_no_profiles_are_refused() -> None:
    for text in ("", "two", "1-", "-1", "1-2-3"):
        with pytest.raises(SettingsError, match="write 4, or 0-4"):
            NodeRange.parse(text)
    with pytest.raises(SettingsError, match="at least one worker"):
        split_hosts(["10.0.0.1"])
    assert split_profiles("ray") == ("ray", "ray"), "that of all machines"
    assert split_profiles("head,workers") == ("head", "workers")
    with pytest.raises(SettingsError, match="3 instance profiles"):
        split_profiles("head,workers,others")


def test_the_command_writes_a_file_that_jobs_can_read(tmp_path: Path) -> None:
    outputs, out = outputs_file(tmp_path), tmp_path / "cluster.yaml"
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


def test_the_command_refuses_wrong_options_without_importing_ray() -> None:
    hosts = ("--host", "a", "--host", "b")
    for options, named in (
        (("--env", "dev"), "PROFILE=HEAD,WORKERS"),
        (("--env", "dev", "--profile", "ray"), "AMI=ami-"),
        (hosts, "RUNS=/nfs/runs"),
        ((*hosts, "--runs", "/nfs"), "SSH_USER"),
        ((*hosts, "--spot"), "--spot"),
        (("--env", "dev", "--runs", "/nfs"), "--runs"),
    ):
        assert_refused(2, named, "ray-cluster", *options)
    answer = ask("ray-cluster")
    assert (answer.status, 'HOSTS="HEAD WORKER …"' in answer.err, answer.heavy) == (2, True, frozenset())


def test_a_file_of_another_release_or_of_somebody_else_is_refused(tmp_path: Path) -> None:
    own, odd = yaml.safe_dump(own_file()), own_file()
    odd["metadata"][METADATA_KEY]["home"] = "~/lab; reboot"  # which a shell would take for more than a path
    platform = dev_stack().release.platform
    file = tmp_path / "cluster.yaml"
    for text, version, said in (
        (own, "9.9.9", r"this checkout is 9\.9\.9"),
        (yaml.safe_dump(odd), platform, "home"),
        ("cluster_name: mine\n", platform, "make ray-cluster"),
        ("metadata: {ray-train-platform: 3}\n", platform, "make ray-cluster"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=said):
            read_place(file, platform=version)


def test_aws_clusters_of_two_names_share_nothing_on_a_machine() -> None:
    first, second = (aws_file(name=name)["file_mounts"] for name in ("one", "two"))
    assert set(first).isdisjoint(second)


def test_it_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(own_file()), encoding="utf-8")
    for (first, *options), named in (
        (["logs", "first", "--days", "3"], "--days=3"),
        (["logs", "first", "--rank", "1"], "the log of a rank is in its run's folder"),
        (["train", "--env", "dev"], "--env needs Kubernetes"),
        (["train", "--schedule", "0 2 * * *"], "--schedule needs Kubernetes"),
        (["train", "--dataset", "image_folder", "--data-path", "photos"], "data.path=photos is on this machine"),
    ):
        for said in (named, "remedy: "):
            assert_refused(2, said, first, "--ray", str(file), *options)
    assert_refused(2, "none.yaml: no such file", "jobs", "--ray", str(tmp_path / "none.yaml"))


def test_ray_cluster_passes_each_host_and_words_with_spaces_and_quotes() -> None:
    typed = ["HOSTS=10.0.0.1 10.0.0.2", "SSH_USER=me", "RUNS=/nfs/my runs", "SSH_KEY=it's"]
    words = ["--host", "10.0.0.1", "--host", "10.0.0.2", "--ssh-user", "me"]
    words += ["--ssh-key", "it's", "--runs", "/nfs/my runs"]
    assert command("ray-cluster", *typed) == ["-m", "training", "ray-cluster", *words]


def test_commands_on_jobs_take_a_launcher_file_and_others_refuse_it_instead_of_working_here() -> None:
    assert ("--ray", "my lab.yaml") in pairwise(command("train", "RAY=my lab.yaml"))
    for targets in (("resize",), ("notebook",), ("jobs", "resize")):
        refused = make("--dry-run", *targets, "RAY=lab.yaml")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "RAY=file.yaml is for train, resume, logs, stop and jobs" in refused.stderr
