"""A launcher file for machines that exist, over SSH."""

from __future__ import annotations

import shlex
from typing import Any

from infra.spec.outputs import StackOutputs, TeamOutput
from training.vms.aws import bucket_of
from training.vms.clusters import OwnCluster
from training.vms.machine import software, token_file
from training.vms.place import RunPlace, home_of, local_tracking, metadata_of

_AUTOSCALER = {"RAY_enable_autoscaler_v2": "0"}
"""The second autoscaler of Ray 2.60, the default of `ray up`, never starts workers of machines that exist: it does not know the head, and
logs "Adding 1 node(s)" every five seconds. The first one does."""


def render(
    cluster: OwnCluster,
    *,
    platform: str,
    stack: tuple[StackOutputs, TeamOutput] | None = None,
    tracking_uri: str | None = None,
) -> dict[str, Any]:
    """The launcher file, as data. Every worker is always part of the cluster.

    Args:
        cluster: the machines.
        platform: this checkout's release.
        stack: a stack, with a team, whose bucket keeps copies of checkpoints; the machines need AWS credentials for it.
        tracking_uri: MLflow; None keeps a store in the folder of the runs.
    """
    runs = str(cluster.runs)
    place = RunPlace(
        platform=platform,
        home=home_of(cluster.name),
        token_file=str(token_file(cluster.name)),
        runs=runs,
        checkpoint_remote=None if stack is None else bucket_of(*stack),
        checkpoint_owner=None if stack is None else stack[0].account,
        tracking_uri=tracking_uri or local_tracking(runs),
    )
    key = {} if cluster.ssh_key is None else {"ssh_private_key": str(cluster.ssh_key.resolve())}
    return {
        "cluster_name": cluster.name,
        "min_workers": len(cluster.workers),
        "max_workers": len(cluster.workers),
        "provider": {"type": "local", "head_ip": cluster.head, "worker_ips": list(cluster.workers)},
        "auth": {"ssh_user": cluster.ssh_user, **key},
        **software(place, _AUTOSCALER),
        "initialization_commands": [f"test -w {shlex.quote(runs)}"],
        "metadata": metadata_of(place),
    }
