"""Checks of this machine before a run starts, before anything heavy is imported or started.

Ray waits forever for a missing CPU or GPU, and an unusable port or folder fails only half a minute into the start. Each error
names what is available and the nearest setting that works. torch is not imported: counting devices with it takes seconds.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from infra.spec.compute_capability import FLOAT8, Capability, parse_capability, written
from training.config.schema import ScaleSettings, TrainingSettings
from training.data import registry as datasets
from training.errors import PreflightError

SMALLEST_FREE_BYTES: Final = 256 * 2**20
"""Free space a run needs to start. A checkpoint of ResNet-18 with AdamW's state takes 3 x 4 bytes for each of 11.7 million
parameters, 134 MiB, and a new one is written before the old one is deleted."""

_CLUSTER_ANSWERS_WITHIN: Final = 3.0
"""Seconds; a Ray head accepts connections in milliseconds."""


@dataclass(frozen=True)
class Machine:
    """The resources that this process may use.

    Attributes:
        cpus: CPUs it may run on: the lower of affinity and cgroup quota, at least 1.
        gpus: GPUs visible to it under `CUDA_VISIBLE_DEVICES`.
    """

    cpus: int
    gpus: int


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """The machine this process runs on. Runs `nvidia-smi` if installed, which takes a fraction of a second."""
    return Machine(cpus=available_cpus(), gpus=visible_gpus(environment))


def fit_workers(settings: TrainingSettings, machine: Machine) -> tuple[TrainingSettings, str]:
    """Reduce the default number of workers to the machine's CPUs or GPUs, so that `make train` works with one CPU.

    An explicit number is never changed: `check` refuses it if it does not fit. The global batch stays, so the training is the same.

    Returns:
        The settings to run with, and a notice for the user; empty if nothing changed.
    """
    scale = settings.scale
    fitting = max(1, (machine.gpus if scale.gpu else machine.cpus // scale.cpus_per_worker))
    if "workers" in scale.model_fields_set or scale.address is not None or scale.workers <= fitting:
        return settings, ""
    if settings.strategy.ranks_per_share > fitting:
        return settings, ""
    smaller = settings.model_copy(update={"scale": scale.model_copy(update={"workers": fitting})})
    kind, count = ("GPU", machine.gpus) if scale.gpu else ("CPU", machine.cpus)
    return smaller, f"{fitting} worker instead of the default {scale.workers}: this machine has {count} {kind}"


def check(settings: TrainingSettings, machine: Machine, *, directory: str = "run.directory") -> None:
    """Refuse a run that does not fit this machine.

    Args:
        settings: of the run.
        machine: this one.
        directory: the setting that the user knows the run's directory by.

    Raises:
        PreflightError: too few CPUs or GPUs, a folder that cannot be written, too little space, a port in use, a Ray
            cluster that does not answer, no compiler for compute.compile, no DeepSpeed for strategy.name=zero1 to zero3, or no GPU or
            library for precision.mode=fp8.
        DataError: files of the dataset are missing or truncated.
    """
    scale = settings.scale
    if scale.address is None:
        _check_cpus(scale, machine)
        if scale.gpu:
            _check_gpus(scale, machine)
        if settings.precision.mode == "fp8":
            _check_float8(compute_capabilities())
    else:
        _check_cluster(scale.address)
    metrics = settings.metrics
    if metrics.exporter == "ray" and scale.address is None:
        raise PreflightError(
            "metrics.exporter=ray needs a Ray cluster (scale.address): a run on one machine has no metrics agent",
            remedy="set metrics.exporter=prometheus, which serves the same metrics from rank 0",
        )
    if metrics.exporter == "prometheus" and scale.address is None and scale.node_rank == 0:
        _check_port(metrics.host, metrics.port)
    if settings.data.is_in_bucket and settings.data.cache is None:
        raise PreflightError(
            f"data.path={settings.data.path} is in a bucket, and data.cache is not set",
            remedy="set data.cache to a folder on a local disk, which the dataset is copied to",
        )
    if settings.compute.compile != "off":
        _check_compiler(settings.compute.compile)
    if settings.strategy.is_zero:
        _check_deepspeed(settings.strategy.name)
    if settings.precision.mode == "fp8":
        check_float8_library()
    datasets.check_files(settings.data)
    _check_folder(settings.run.directory, setting=directory)  # last, because it makes it


def find_compiler() -> str | None:
    """The C++ compiler that `torch.compile` would use, as `$CXX` or g++ on PATH; None if there is none."""
    return shutil.which(_compiler_name())


def _compiler_name() -> str:
    return os.environ.get("CXX", "g++")


def _check_compiler(mode: str) -> None:
    """`torch.compile` compiles C++ for CPUs, and the launchers of its kernels for GPUs."""
    if find_compiler() is None:
        raise PreflightError(
            f"compute.compile={mode} needs a C++ compiler, and there is no `{_compiler_name()}` on PATH",
            remedy="apt-get install g++, set CXX to a compiler, or set compute.compile=off",
        )


def _check_deepspeed(strategy: str) -> None:
    """DeepSpeed is installed apart, because it is built from source."""
    if find_spec("deepspeed") is None:
        raise PreflightError(
            f"strategy.name={strategy} needs DeepSpeed, which is not installed",
            remedy="make env WITH=deepspeed, or use strategy.name=fsdp2, which divides the same state",
        )


def available_cpus(root: Path = Path("/")) -> int:
    """CPUs available to this process: its affinity, or its cgroup's quota if that is less.

    Args:
        root: folder that contains proc and sys.
    """
    allowed = len(os.sched_getaffinity(0))
    quotas = [quota for quota in (_quota_v2(root), _quota_v1(root)) if quota is not None]
    return max(1, int(min([allowed, *quotas])))


def available_memory(root: Path = Path("/")) -> int:
    """Memory in bytes that this process and its children can still use: what the machine has available, or its cgroup leaves if less.

    What a cgroup uses for cached files counts as free, because the kernel takes it back (kernel documentation, cgroup-v2, memory
    interface, and cgroup-v1/memory; `MemAvailable` of proc(5) does the same for the machine).

    Args:
        root: folder that contains proc and sys.
    """
    meminfo = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) * 1024
    return max(0, min([available, *_memory_left(root)]))


def visible_gpus(environment: Mapping[str, str]) -> int:
    """NVIDIA GPUs that CUDA would show this process.

    CUDA stops at the first entry of `CUDA_VISIBLE_DEVICES` that names no device, so `-1` or an empty value hides all
    of them (CUDA C++ programming guide, environment variables).
    """
    present = _present_gpus()
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    count = 0
    for entry in chosen.split(","):
        name = entry.strip()
        if not (name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < present)):
            break
        count += 1
    return count if present else 0


def _present_gpus() -> int:
    """GPUs of the machine or container: as the driver lists them, else by their device files."""
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False, timeout=30)
        if listed.returncode == 0:
            return len(re.findall(r"^GPU \d+:", listed.stdout, flags=re.MULTILINE))
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def compute_capabilities() -> list[Capability]:
    """Compute capabilities of the machine's GPUs, as the driver lists them; none if it cannot."""
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return [parse_capability(text) for text in re.findall(r"^\d+\.\d+", listed.stdout, flags=re.MULTILINE)]


def _check_float8(capabilities: Sequence[Capability]) -> None:
    """Refuse a machine of which no GPU has 8-bit numbers; a rank on a GPU without them is refused later."""
    if capabilities and max(capabilities) < FLOAT8:
        raise PreflightError(
            f"precision.mode=fp8 needs GPUs of compute capability {written(FLOAT8)} or higher, this machine's have "
            f"{written(max(capabilities))}",
            remedy="set precision.mode=bf16, or train on GPUs such as L4, L40S, H100 or B200",
        )


def check_float8_library() -> None:
    """Refuse an environment without the library of precision.mode=fp8.

    Raises:
        PreflightError: torchao is not installed.
    """
    if find_spec("torchao") is None:
        raise PreflightError(
            "precision.mode=fp8 needs the package torchao, which is not installed",
            remedy="run `make env`, install the version of requirements.lock, or set precision.mode=bf16",
        )


def _fewest(scale: ScaleSettings) -> tuple[int, str]:
    """The workers that this machine needs room for, and what they are called: of an elastic run the fewest."""
    if scale.is_elastic and scale.min_workers is not None:
        return scale.min_workers, f"scale.workers={scale.min_workers}-{scale.workers} needs at least"
    return scale.workers // scale.nodes, f"scale.workers={scale.workers} needs"


def _check_cpus(scale: ScaleSettings, machine: Machine) -> None:
    local, needs = _fewest(scale)
    needed = local * scale.cpus_per_worker
    if needed <= machine.cpus:
        return
    where = " on each machine" if scale.nodes > 1 else ""
    per_worker = f" x {scale.cpus_per_worker} CPUs" if scale.cpus_per_worker > 1 else ""
    if fitting := machine.cpus // scale.cpus_per_worker:
        remedy = f"--num-workers {fitting * scale.nodes} fits"
    else:
        remedy = f"--num-workers {scale.nodes} --set scale.cpus_per_worker={machine.cpus} fits"
    raise PreflightError(
        f"{needs} {local}{per_worker} = {needed} CPUs{where}, this machine has {machine.cpus}",
        remedy=remedy,
    )


def _check_gpus(scale: ScaleSettings, machine: Machine) -> None:
    local, needs = _fewest(scale)
    if local <= machine.gpus:
        return
    if machine.gpus == 0:
        hidden = "CUDA_VISIBLE_DEVICES" in os.environ and _present_gpus() > 0
        why = (
            f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} hides them all" if hidden else "none was found"
        )
        raise PreflightError(
            f"scale.gpu=true needs one GPU per worker (scale.workers={scale.workers}), and {why}",
            remedy="omit --use-gpu (GPU=1) to train on CPUs, or check the driver with nvidia-smi",
        )
    raise PreflightError(
        f"{needs} {local} GPUs on this machine (scale.gpu=true), which has {machine.gpus}",
        remedy=f"--use-gpu --num-workers {machine.gpus * scale.nodes} fits",
    )


def _check_cluster(address: str) -> None:
    """Connects to the head of a Ray cluster; `auto` and `local` are left to Ray, which resolves them at once."""
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        if place in {"auto", "local"}:
            return
        raise PreflightError(
            f"scale.address={address} is not host:port", remedy="write HOST:6379, ray://HOST:10001 or auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CLUSTER_ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise PreflightError(
            f"scale.address={address}: no Ray cluster answers: {error}",
            remedy="start it, correct the address, or omit it to start one on this machine",
        ) from error


def _check_folder(folder: Path, *, setting: str) -> None:
    remedy = f"choose another with --set {setting}=FOLDER"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # File modes are not enough: root ignores them, and they do not show a read-only mount.
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise PreflightError(f"{setting}={folder} cannot be written: {error.strerror}", remedy=remedy) from error
    if free < SMALLEST_FREE_BYTES:
        raise PreflightError(
            f"{setting}={folder} has {free >> 20} MiB free, a run needs {SMALLEST_FREE_BYTES >> 20} MiB to start",
            remedy=f"free disk space, or {remedy}",
        )


def _check_port(host: str, port: int) -> None:
    """Binds the port as the exporter will; even for port 0 the host must be this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message, remedy = f"metrics.port={port} is in use on {host}", "--set metrics.port=0 uses a free one"
            else:
                message = f"metrics.host={host}, metrics.port={port} cannot be served: {error.strerror}"
                remedy = "metrics.host=127.0.0.1 serves this machine, 0.0.0.0 all; ports below 1024 need root"
            raise PreflightError(message, remedy=remedy) from error


def _quota_v2(root: Path) -> float | None:
    """CPUs of the tightest `cpu.max` of this process's groups (kernel documentation, cgroup-v2, CPU interface)."""
    limits: list[float] = []
    for group in _groups(root, controller="", mount=root / "sys/fs/cgroup"):
        file = group / "cpu.max"
        if file.exists():
            quota, period = file.read_text(encoding="ascii").split()
            if quota != "max":
                limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _quota_v1(root: Path) -> float | None:
    """CPUs of the tightest `cpu.cfs_quota_us` (kernel documentation, scheduler/sched-bwc)."""
    limits: list[float] = []
    for group in _groups(root, controller="cpu", mount=root / "sys/fs/cgroup/cpu"):
        file = group / "cpu.cfs_quota_us"
        if file.exists():
            quota = int(file.read_text(encoding="ascii"))
            if quota > 0:
                limits.append(quota / int((group / "cpu.cfs_period_us").read_text(encoding="ascii")))
    return min(limits, default=None)


def _memory_left(root: Path) -> Iterator[int]:
    """Bytes that each of this process's groups leaves, of those that have a limit."""
    mount = root / "sys/fs/cgroup"
    for controller, folder, limit, usage, cached in (
        ("", mount, "memory.max", "memory.current", ("inactive_file", "active_file")),
        (
            "memory",
            mount / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ("total_inactive_file", "total_active_file"),
        ),
    ):
        for group in _groups(root, controller=controller, mount=folder):
            if not (group / limit).exists() or (text := (group / limit).read_text(encoding="ascii").strip()) == "max":
                continue
            used = int((group / usage).read_text(encoding="ascii"))
            stat = group / "memory.stat"
            lines = stat.read_text(encoding="ascii").splitlines() if stat.exists() else []
            yield int(text) - used + sum(int(line.split()[1]) for line in lines if line.split()[0] in cached)


def _groups(root: Path, *, controller: str, mount: Path) -> list[Path]:
    """This process's cgroup and its ancestors, which limit it too; in a container its own is the root."""
    file = root / "proc/self/cgroup"
    if not file.exists():
        return []
    for line in file.read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = mount / path.lstrip("/")
            return [group, *(above for above in group.parents if above.is_relative_to(mount))]
    return []
