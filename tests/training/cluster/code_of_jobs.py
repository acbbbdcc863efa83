"""A code folder to submit, and the pod's own commands run as processes on what the API server has."""

from __future__ import annotations

import base64
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

from infra.spec.cluster_names import CODE_ARCHIVE_PATH, CODE_PATH
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.code import DELIVERY_CONTAINER
from tests.engines.kubernetes import Cluster
from tests.kuberay.expand import expand
from tests.processes import run_command
from tests.training.cli.command import ROOT

NETS = """
from torch import nn


def make(spec, *, width=8):
    features = spec.shape[0] * spec.shape[1] * spec.shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(features, width), nn.ReLU(), nn.Linear(width, spec.outputs))
"""

CONFIGURATION = """
model: { name: "nets:make", options: { width: 4 } }
loop: { epochs: 1 }
"""


def project(folder: Path, *, noise_bytes: int = 0) -> Path:
    """A model of one's own, a configuration that names it, and so many bytes that do not compress."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    (folder / "train.yaml").write_text(CONFIGURATION, encoding="utf-8")
    if noise_bytes:
        (folder / "noise.bin").write_bytes(random.Random(1).randbytes(noise_bytes))
    return folder


def mount_parts(cluster: Cluster, pod: Manifest, folder: Path, *, volume: str = "code-parts") -> None:
    """Write a pod's parts of the archive as the kubelet does: links into a folder that a link names."""
    (parts,) = [one for one in pod["spec"]["volumes"] if one["name"] == volume]
    behind = folder / "..2026_11_22_08_00_00.1"
    behind.mkdir(parents=True)
    (folder / "..data").symlink_to(behind.name)
    for source in parts["projected"]["sources"]:
        name = source["configMap"]["name"]
        found = cluster.existing(api_object("v1", "ConfigMap", name, namespace=pod["metadata"]["namespace"]))
        for key, text in found["binaryData"].items():
            (behind / key).write_bytes(base64.b64decode(text))
            (folder / key).symlink_to(f"..data/{key}")


def deliver(pod: Manifest, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the init container's command on the parts in `scratch/parts`; what it makes is below `scratch/delivered`."""
    (container,) = [one for one in pod["spec"]["initContainers"] if one["name"] == DELIVERY_CONTAINER]
    places = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    folders = {places["code-parts"]: str(scratch / "parts"), places["code"]: str(scratch / "delivered")}
    return run_in_pod([*container["command"], *container["args"]], folders)


def train(job: Manifest, settings_yaml: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the head's entrypoint with the code below `scratch/delivered`, in one process instead of Ray's."""
    (scratch / "settings").mkdir()
    (scratch / "settings" / "settings.yaml").write_text(settings_yaml, encoding="utf-8")
    head, *_ = expand(job)
    (container,) = head["spec"]["containers"]
    folders = {
        "/etc/training": str(scratch / "settings"),
        CODE_ARCHIVE_PATH: str(scratch / "delivered" / "archive"),
        CODE_PATH: str(scratch / "delivered" / "files"),
    }
    environment = {one["name"]: one["value"] for one in container["env"] if one["name"] == "RTP_CODE_FOLDER"}
    alone = ["scale.launcher=plain", "scale.workers=1", "scale.address=null", "tracking.enabled=false"]
    alone += ["metrics.exporter=none", "checkpoint.remote=null"]
    alone += ["checkpoint.remote_owner=null", f"run.directory={scratch / 'runs'}"]
    words = shlex.split(job["spec"]["entrypoint"])
    for one in alone:
        words += ["--set", one]
    return run_in_pod(words, folders, environment)


def run_in_pod(
    words: list[str], folders: dict[str, str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Python program of a pod with other folders in place of its mounts."""

    def moved(text: str) -> str:
        for mount in sorted(folders, key=len, reverse=True):
            text = text.replace(mount, folders[mount])
        return text

    program, *rest = words
    assert program == "python"
    own = {name: moved(value) for name, value in (environment or {}).items()}
    path = os.pathsep.join([str(ROOT), *own.values()])
    variables = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "PYTHONPATH": path, **own}
    return run_command([sys.executable, *map(moved, rest)], cwd=Path("/"), env=variables, seconds=120)
