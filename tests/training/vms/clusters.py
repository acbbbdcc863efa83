"""Clusters and their launcher files, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_charts.jobs.request import Target
from tests.training.cluster.team_cluster import target as dev_stack
from training.cluster.context import team_named
from training.vms import aws, own
from training.vms.clusters import AwsCluster, NodeRange, OwnCluster

AMI = "ami-0123456789abcdef0"


def aws_cluster(**changes: Any) -> AwsCluster:  # noqa: ANN401 - fields of several types
    """One to three workers of the dev stack's group a10g."""
    given: dict[str, Any] = {
        "name": "ray-dev",
        "workers": NodeRange(1, 3),
        "group": "a10g",
        "is_spot": False,
        "head_profile": "ray-head",
        "worker_profile": "ray-worker",
        "ami": AMI,
        "ssh_user": "ec2-user",
    }
    return AwsCluster(**{**given, **changes})


def aws_file(target: Target | None = None, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """The launcher file of such a cluster on the dev stack."""
    stack = target or dev_stack()
    return aws.render(aws_cluster(**changes), stack, team_named(stack.outputs, "research"))


def own_cluster(**changes: Any) -> OwnCluster:  # noqa: ANN401 - as above
    given: dict[str, Any] = {
        "name": "lab",
        "head": "10.0.0.1",
        "workers": ("10.0.0.2", "10.0.0.3"),
        "ssh_user": "me",
        "ssh_key": None,
        "runs": Path("/nfs/runs"),
    }
    return OwnCluster(**{**given, **changes})


def own_file(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    return own.render(own_cluster(**changes), platform=dev_stack().release.platform)
