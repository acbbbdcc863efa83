"""A launcher file for machines in EC2, from the outputs of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from infra.spec.cluster_names import DATASETS_PATH, RUNS_PATH
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.names import PLATFORM_TAG, STACK_TAG, stack_tag_of
from infra.spec.outputs import GpuGroupOutput, NetworkOutput, StackOutputs, TeamOutput
from infra.spec.section import nearest
from infra.spec.settings.loading import PROJECT
from platform_charts.jobs.request import Target
from training.vms.clusters import AwsCluster
from training.vms.machine import software, token_file
from training.vms.place import RunPlace, home_of, local_tracking, metadata_of

HEAD = "head"
WORKER = "worker"

_ROOT_GIB = 200
"""Size of a machine's root volume: the image and the trainer's environment take 60 GiB of it."""

_IDLE_MINUTES = 10
_IN_CLUSTER = (".svc", ".cluster.local")
_BROUGHT_UP = "bring the stack up with this release: make up ENV={env}"


def render(cluster: AwsCluster, target: Target, team: TeamOutput, *, tracking_uri: str | None = None) -> dict[str, Any]:
    """The launcher file, as data.

    The machines are in the stack's private subnets, without public addresses, and members of its nodes' security group, by which they
    reach its file system. SSH goes through SSM, so that no port is open to anyone outside of the group.

    Args:
        cluster: the machines.
        target: the stack.
        team: whose runs, and whose part of the bucket, the jobs use.
        tracking_uri: MLflow; None is the stack's, where machines outside of its cluster can reach it.

    Raises:
        SettingsError: the stack has no such GPU group.
        RefusedError: the stack does not say what is needed, or sells the group's nodes in another way.
    """
    outputs = target.outputs
    place = place_of(cluster.name, outputs, team, tracking_uri=tracking_uri)
    common = software(place)
    return {
        "cluster_name": cluster.name,
        "max_workers": cluster.workers.most,
        "idle_timeout_minutes": _IDLE_MINUTES,
        "provider": {
            "type": "aws",
            "region": outputs.region,
            "use_internal_ips": True,
            "cache_stopped_nodes": False,
        },
        "auth": {
            "ssh_user": cluster.ssh_user,
            "ssh_proxy_command": "aws ssm start-session --target %h --document-name AWS-StartSSHSession "
            f"--parameters portNumber=%p --region {outputs.region}",
            "ssh_proxy_use_node_id": True,
        },
        "head_node_type": HEAD,
        "available_node_types": _node_types(cluster, target),
        **common,
        "initialization_commands": _mounts(outputs, team),
        "metadata": metadata_of(place),
    }


def place_of(name: str, outputs: StackOutputs, team: TeamOutput, *, tracking_uri: str | None) -> RunPlace:
    """Where jobs of such a cluster keep their runs: as on Kubernetes, but for an MLflow that only pods reach."""
    return RunPlace(
        platform=outputs.platform,
        home=home_of(name),
        token_file=str(token_file(name)),
        runs=RUNS_PATH,
        data_folders=(DATASETS_PATH, RUNS_PATH),
        checkpoint_remote=bucket_of(outputs, team),
        checkpoint_owner=outputs.account,
        tracking_uri=tracking_uri or reachable_mlflow(outputs) or local_tracking(RUNS_PATH),
    )


def bucket_of(outputs: StackOutputs, team: TeamOutput) -> str:
    """The team's part of the stack's checkpoint bucket, as for its jobs on Kubernetes."""
    return f"s3://{outputs.storage.checkpoint_bucket}/{team.namespace}"


def reachable_mlflow(outputs: StackOutputs) -> str | None:
    """The stack's MLflow, unless its name is one that only pods resolve."""
    host = urlsplit(outputs.mlflow_uri).hostname or ""
    return None if host.endswith(_IN_CLUSTER) else outputs.mlflow_uri


def gpu_group(name: str | None, outputs: StackOutputs) -> GpuGroupOutput:
    """The GPU group of that name; None means the only one.

    Raises:
        SettingsError: there is no such group, or several to choose from.
        RefusedError: its nodes are of a Capacity Block, which a launch has to name.
    """
    groups = {group.name: group for group in outputs.gpu_groups}
    known = f"one of {', '.join(groups)}" if groups else "add one to the environment's file and bring the stack up"
    if name is None and len(groups) != 1:
        raise SettingsError(
            f"stack {outputs.environment} has {len(groups)} GPU groups, choose one",
            remedy=f"GROUP=… (--group), {known}",
        )
    if name is not None and name not in groups:
        raise SettingsError(
            f"group={name!r}: stack {outputs.environment} has no such GPU group",
            remedy=nearest(name, groups) if groups else known,
        )
    group = groups[name] if name is not None else next(iter(groups.values()))
    if group.capacity_type == "CAPACITY_BLOCK":
        raise RefusedError(
            f"group={group.name} is a Capacity Block, whose instances only the stack's node group can launch",
            remedy="name a group on demand or spot",
        )
    return group


def head_type(outputs: StackOutputs) -> str:
    """Instance type of the head.

    Raises:
        RefusedError: the stack is of a release that does not say.
    """
    if outputs.head_instance_type is None:
        raise RefusedError(
            f"stack {outputs.environment} does not say head_instance_type",
            remedy=_BROUGHT_UP.format(env=outputs.environment),
        )
    return outputs.head_instance_type


def _network(outputs: StackOutputs) -> NetworkOutput:
    if outputs.network is None:
        raise RefusedError(
            f"stack {outputs.environment} does not say its subnets and security group (network)",
            remedy=_BROUGHT_UP.format(env=outputs.environment),
        )
    return outputs.network


def _node_types(cluster: AwsCluster, target: Target) -> dict[str, Any]:
    outputs = target.outputs
    group = gpu_group(cluster.group, outputs)
    worker = target.catalog.find_instance(group.instance_type)
    is_spot = cluster.is_spot or group.capacity_type == "SPOT"
    return {
        HEAD: {
            "min_workers": 0,
            "max_workers": 0,
            "resources": {"CPU": 0},
            "node_config": _instance(cluster, outputs, head_type(outputs), profile=cluster.head_profile),
        },
        WORKER: {
            "min_workers": cluster.workers.fewest,
            "max_workers": cluster.workers.most,
            "resources": {"CPU": worker.vcpus, "GPU": worker.gpus},
            "node_config": {
                **_instance(cluster, outputs, worker.name, profile=cluster.worker_profile),
                **({"InstanceMarketOptions": {"MarketType": "spot"}} if is_spot else {}),
            },
        },
    }


def _instance(cluster: AwsCluster, outputs: StackOutputs, instance_type: str, *, profile: str) -> dict[str, Any]:
    """Parameters of EC2's RunInstances; Ray makes one `SubnetId` of `SubnetIds`, and tries the next where there is no capacity."""
    network = _network(outputs)
    tags: Mapping[str, str] = {PLATFORM_TAG: PROJECT, STACK_TAG: stack_tag_of(outputs.environment)}
    return {
        "InstanceType": instance_type,
        "ImageId": cluster.ami,
        "SubnetIds": list(network.private_subnets),
        "SecurityGroupIds": [network.node_security_group],
        "IamInstanceProfile": {"Name": profile},
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"VolumeSize": _ROOT_GIB, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for kind in ("instance", "volume")
        ],
    }


def _mounts(outputs: StackOutputs, team: TeamOutput) -> list[str]:
    """Commands that mount the team's runs and the datasets by their access points, with TLS and the machine's role."""
    if team.efs_access_point is None:
        raise RefusedError(
            f"stack {outputs.environment} does not say the access point of team {team.name}'s runs",
            remedy=_BROUGHT_UP.format(env=outputs.environment),
        )
    points = {RUNS_PATH: team.efs_access_point, DATASETS_PATH: outputs.storage.efs_access_point}
    mounts = [
        f"sudo mkdir -p {path} && (mountpoint -q {path} || "
        f"sudo mount -t efs -o tls,iam,accesspoint={point} {outputs.storage.efs_id}:/ {path})"
        for path, point in points.items()
    ]
    return ["sudo dnf install -y -q amazon-efs-utils python3.11", *mounts]
