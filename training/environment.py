"""The environment of a run: interpreter, packages, machine, revision of the code. Nothing heavy is imported.

The description is written to the run's log and, from there, to MLflow (`environment.json`), to compare runs.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from infra.spec.cluster_names import PRICE_VARIABLE, WORKER_PRICE_VARIABLE
from infra.spec.yaml_text import read_file

DISTRIBUTION = "ray-train-platform"

SUBMITTED_VARIABLE = "RTP_SUBMITTED"
"""Environment variable of a driver on a cluster: the Unix time at which its job was submitted."""

RUN_ARGUMENTS_VARIABLE = "RTP_RUN_ARGUMENTS"
"""Environment variable of a driver on a cluster: what names its run for `make`, e.g. `ENV=prod JOB=digits TEAM=research`."""

_EXTRA = "job"
_ROOT = Path(__file__).resolve().parents[1]
_RELEASE = _ROOT / "infra" / "spec" / "release.yaml"
_PROBE_SECONDS = 5.0


def describe(code: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The environment as plain JSON types; what is unknown (no git, no GPU) is null or empty.

    Args:
        code: what is recorded of the run's own code, if it has some.
    """
    return {
        "platform_version": platform_version(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "host": socket.gethostname(),
        "user": _user(),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count(), "available": len(os.sched_getaffinity(0))},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _gpus(),
        "packages": _packages(),
        "git": revision(_ROOT),
        "code": None if code is None else dict(code),
    }


def submitted(variables: Mapping[str, str] = os.environ) -> float:
    """When the job of this driver was submitted, as Unix time; 0 outside of a job, and in one that a schedule submitted."""
    return float(variables.get(SUBMITTED_VARIABLE, "0"))


def run_arguments(variables: Mapping[str, str] = os.environ) -> str | None:
    """What names the run of this driver on the command line of whoever submitted it; None outside of a job."""
    return variables.get(RUN_ARGUMENTS_VARIABLE)


def dollars_per_hour(variables: Mapping[str, str] = os.environ) -> float | None:
    """Price of what the job of this driver holds all the time; None outside of a job, and where the stack has no price for its nodes."""
    price = variables.get(PRICE_VARIABLE)
    return None if price is None else float(price)


def dollars_per_worker_hour(variables: Mapping[str, str] = os.environ) -> float:
    """Price of what an elastic job of this driver holds for each of its workers in addition; 0 for another job."""
    return float(variables.get(WORKER_PRICE_VARIABLE, "0"))


@cache
def platform_version() -> str:
    """Version of the platform, of the release manifest; the trainer image lacks that file, and has the version in its metadata."""
    if _RELEASE.is_file():
        return str(read_file(_RELEASE).value["platform"])
    return metadata.version(DISTRIBUTION)


def revision(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and whether tracked files differ from the commit; None without git or a commit."""
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    lines = _output_of(command).splitlines()
    header = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    if header.get("branch.oid", "(initial)") == "(initial)":
        return None
    return {
        "revision": header["branch.oid"],
        "branch": header["branch.head"],
        "dirty": any(not line.startswith("#") for line in lines),
    }


@cache
def _requirements() -> tuple[Requirement, ...]:
    """What the trainer needs. The pyproject.toml of a checkout or image is authoritative; a wheel has none."""
    file = _ROOT / "pyproject.toml"
    if file.is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        return tuple(map(Requirement, (*project["dependencies"], *project["optional-dependencies"][_EXTRA])))
    installed = map(Requirement, metadata.requires(DISTRIBUTION) or [])
    return tuple(one for one in installed if one.marker is None or one.marker.evaluate({"extra": _EXTRA}))


def _packages() -> dict[str, str | None]:
    """Installed versions of the trainer's required packages, by name; None for one that is not installed."""
    return {name: _version(name) for name in sorted(one.name for one in _requirements())}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> str:
    """The platform's version, and what a run on this machine would use, a line each."""
    lines = [f"{DISTRIBUTION} {platform_version()}", f"Python {platform.python_version()}"]
    try:
        import torch  # noqa: PLC0415 - takes a second, and is in an extra
    except ModuleNotFoundError:
        return "\n".join([*lines, "torch is not installed"])
    cuda = torch.version.cuda
    lines.append(f"torch {torch.__version__}, built for {f'CUDA {cuda}' if cuda else 'CPUs'}")
    devices = Counter(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    lines += [f"{count} x {name}" for name, count in devices.items()]
    return "\n".join(lines if devices else [*lines, f"no GPU that torch can use; {len(os.sched_getaffinity(0))} CPUs"])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a uid without a passwd entry.
        return str(os.getuid())


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _gpus() -> list[dict[str, Any]]:
    """The machine's NVIDIA GPUs as the driver names them, also those hidden from this process."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    rows = [line.split(", ") for line in _output_of(query).splitlines()]
    # A GPU that shares the machine's memory reports `[N/A]`.
    return [
        {"name": name, "memory_bytes": int(mib) * 2**20 if mib.isdigit() else None, "driver": driver}
        for name, mib, driver in rows
    ]


def _output_of(command: list[str]) -> str:
    """Standard output of a command; empty if the program is missing, fails or does not answer."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""
