"""What every machine of a cluster gets: the checkout, an environment from the lock, and Ray's processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infra.spec.cluster_names import RAY_PORTS
from infra.spec.release_rules import ROOT
from training.vms.place import CHECKOUT, TOKEN, RunPlace

_PARTS = (
    "infra",
    "platform_charts",
    "training",
    "tune",
    "observability",
    ".make",
    "pyproject.toml",
    "requirements.lock",
    "requirements-bootstrap.lock",
)
"""Parts of the checkout that the trainer needs. One by one: Ray reads every file below a mounted folder to see whether it has changed,
and the environment beside them has gigabytes."""

_STOP_SECONDS = 300
"""Seconds from SIGTERM to SIGKILL of a job that is stopped: its run commits a checkpoint. Ray's default is 3."""

_GCS = RAY_PORTS["gcs"]


def file_mounts(place: RunPlace) -> dict[str, str]:
    """Ray's `file_mounts`: folder of the machines to folder of this machine."""
    mounts = {f"{place.home}/{CHECKOUT}/{part}": str(ROOT / part) for part in _PARTS}
    return {**mounts, f"{place.home}/{TOKEN}": place.token_file}


def software(place: RunPlace, variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The fields of a launcher file that are the same wherever the machines are.

    The environment comes from the lock with hashes, by the script that also makes it on a laptop. Ray's services want a token: whoever
    reaches their ports could run code otherwise. The dashboard and its job server listen on loopback.

    Args:
        place: where a cluster's files are.
        variables: environment variables of Ray's processes in addition.
    """
    ray = partial(_ray, place, variables)
    head = (
        f"--head --port={_GCS} --num-cpus=0 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
    )
    return {
        "file_mounts": file_mounts(place),
        "rsync_exclude": ["**/__pycache__"],
        "setup_commands": [
            f"chmod 600 {place.home}/{TOKEN}",
            f"cd {place.checkout} && .make/environment train",
        ],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [ray("stop"), ray(f"start {head}")],
        "worker_start_ray_commands": [ray("stop"), ray(f"start --address=$RAY_HEAD_IP:{_GCS}")],
    }


def _ray(place: RunPlace, variables: Mapping[str, str], command: str) -> str:
    """A command of Ray's, with as many open files as the machine allows, up to what Ray's own examples ask for."""
    given = {
        "PYTHONPATH": "$PWD",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{place.home.replace('~', '$HOME')}/{TOKEN}",
        "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
        "RAY_USAGE_STATS_ENABLED": "0",
        **variables,
    }
    words = " ".join(f"{name}={value}" for name, value in given.items())
    return f"cd {place.checkout} && {{ ulimit -n 65536 2>/dev/null || true; }} && {words} .venv/bin/ray {command}"


def token_file(name: str, *, root: Path = ROOT) -> Path:
    """File with the token of a cluster on this machine."""
    return root / ".local" / "clusters" / f"{name}.token"
