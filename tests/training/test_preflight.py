"""A run that does not fit this machine is refused before anything starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training import preflight
from training.config.load import load_settings
from training.config.schema import TrainingSettings
from training.errors import DataError, ExitStatus, PreflightError
from training.preflight import Machine, available_cpus, available_memory, check, fit_workers, visible_gpus

SMALL = Machine(cpus=2, gpus=0)


def settings(root: Path, *overrides: str) -> TrainingSettings:
    return load_settings(overrides=[f"run.directory={root / 'runs'}", *overrides], environment={})


def refusal(wanted: TrainingSettings, machine: Machine = SMALL) -> str:
    with pytest.raises(PreflightError) as caught:
        check(wanted, machine)
    assert caught.value.status == ExitStatus.REFUSED
    return str(caught.value)


def test_a_run_that_fits_is_accepted(tmp_path: Path) -> None:
    check(settings(tmp_path), SMALL)


@pytest.mark.parametrize(
    ("overrides", "machine", "parts"),
    [
        (["scale.workers=4"], SMALL, ["scale.workers=4 needs 4 = 4 CPUs", "has 2", "--num-workers 2 fits"]),
        (["scale.cpus_per_worker=2"], SMALL, ["needs 2 x 2 CPUs = 4 CPUs", "--num-workers 1 fits"]),
        (
            ["scale.cpus_per_worker=8"],
            SMALL,
            ["needs 2 x 8 CPUs = 16 CPUs", "--num-workers 1 --set scale.cpus_per_worker=2 fits"],
        ),
        (
            ["scale.launcher=torchrun", "scale.workers=8", "scale.nodes=2", "scale.rendezvous=h:1"],
            SMALL,
            ["needs 4 = 4 CPUs on each machine, this machine has 2", "--num-workers 4 fits"],
        ),
        (["scale.gpu=true"], SMALL, ["needs one GPU per worker (scale.workers=2), and none was found"]),
        (["scale.gpu=true"], Machine(cpus=2, gpus=1), ["needs 2 GPUs", "has 1", "--use-gpu --num-workers 1 fits"]),
    ],
)
def test_too_many_workers_are_refused_with_a_number_that_fits(
    overrides: list[str], machine: Machine, parts: list[str], tmp_path: Path
) -> None:
    refused = refusal(settings(tmp_path, *overrides), machine)
    assert [part for part in parts if part not in refused] == [], refused


def with_capabilities(folder: Path, monkeypatch: pytest.MonkeyPatch, *capabilities: str) -> None:
    """Put a driver on PATH that lists GPUs of these compute capabilities."""
    driver = folder / "nvidia-smi"
    driver.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(capabilities))
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


FP8 = ("scale.gpu=true", "scale.workers=1", "precision.mode=fp8")
ONE_GPU = Machine(cpus=2, gpus=1)


def test_fp8_is_refused_on_a_machine_whose_gpus_all_lack_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(tmp_path, monkeypatch, "7.5", "8.6")
    refused = refusal(settings(tmp_path, *FP8), ONE_GPU)
    assert "precision.mode=fp8 needs GPUs of compute capability 8.9 or higher, this machine's have 8.6" in refused
    assert "precision.mode=bf16" in refused
    with_capabilities(tmp_path, monkeypatch, "8.6", "12.0")
    check(settings(tmp_path, *FP8), ONE_GPU)


def test_fp8_without_its_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(tmp_path, monkeypatch, "9.0")
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    assert "needs the package torchao, which is not installed\n  remedy: run `make env`" in refusal(
        settings(tmp_path, *FP8), ONE_GPU
    )


def test_workers_of_a_remote_cluster_are_not_checked_against_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        check(settings(tmp_path, "scale.workers=64", f"scale.address=127.0.0.1:{port}"), SMALL)


def test_a_cluster_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    refused = refusal(settings(tmp_path, f"scale.address=ray://127.0.0.1:{port}"))
    assert f"scale.address=ray://127.0.0.1:{port}: no Ray cluster answers" in refused


@pytest.mark.parametrize("address", ["somewhere", ":6379", "host:port", "127.0.0.1:99999"])
def test_an_invalid_address_is_refused(address: str, tmp_path: Path) -> None:
    assert f"scale.address={address}" in refusal(settings(tmp_path, f"scale.address={address}"))


def test_the_default_number_of_workers_shrinks_to_the_machine(tmp_path: Path) -> None:
    fitted, notice = fit_workers(settings(tmp_path), Machine(cpus=1, gpus=0))
    assert fitted.scale.workers == 1
    assert fitted.loop == settings(tmp_path).loop
    assert notice == "1 worker instead of the default 2: this machine has 1 CPU"
    check(fitted, Machine(cpus=1, gpus=0))


def test_a_default_that_fits_is_kept(tmp_path: Path) -> None:
    assert fit_workers(settings(tmp_path), SMALL) == (settings(tmp_path), "")


def test_an_explicit_number_of_workers_is_not_changed(tmp_path: Path) -> None:
    explicit = settings(tmp_path, "scale.workers=2")
    assert fit_workers(explicit, Machine(cpus=1, gpus=0)) == (explicit, "")


def test_the_default_on_gpus_shrinks_to_the_gpus(tmp_path: Path) -> None:
    fitted, notice = fit_workers(settings(tmp_path, "scale.gpu=true"), Machine(cpus=8, gpus=1))
    assert fitted.scale.workers == 1
    assert "1 GPU" in notice


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert f"run.directory={tmp_path / 'runs'} cannot be written: File exists" in refusal(settings(tmp_path))


def test_a_file_system_that_rejects_files_is_refused(tmp_path: Path) -> None:
    refused = refusal(settings(tmp_path, "run.directory=/proc/self"))
    assert "run.directory=/proc/self cannot be written" in refused


def test_a_full_disk_is_refused_with_the_free_and_the_needed_space(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "runs"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a file system")
    try:
        assert "has 8 MiB free, a run needs 256 MiB" in refusal(settings(tmp_path))
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_port_in_use_is_refused_with_port_0_as_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = refusal(settings(tmp_path, f"metrics.port={port}"))
    assert f"metrics.port={port} is in use on 127.0.0.1" in refused
    assert "metrics.port=0" in refused


def test_a_host_of_another_machine_cannot_serve_the_metrics(tmp_path: Path) -> None:
    # 192.0.2.0/24 is reserved for documentation (RFC 5737).
    assert "metrics.host=192.0.2.1" in refusal(settings(tmp_path, "metrics.host=192.0.2.1"))


def test_the_port_is_not_checked_without_the_exporter(tmp_path: Path) -> None:
    check(settings(tmp_path, "metrics.host=192.0.2.1", "metrics.exporter=none"), SMALL)


def test_rays_exporter_is_refused_without_a_ray_cluster(tmp_path: Path) -> None:
    refused = refusal(settings(tmp_path, "metrics.exporter=ray"))
    assert "metrics.exporter=ray" in refused
    assert "metrics.exporter=prometheus" in refused


def test_missing_files_of_a_dataset_are_refused(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "data.dataset=cifar10", f"data.path={tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="nowhere"):
        check(wanted, SMALL)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/pod/container\n",
                "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_the_cgroup_quota_bounds_the_cpus(
    files: dict[str, str], cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    assert available_cpus(tmp_path) == cpus


def test_affinity_bounds_the_cpus() -> None:
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    program += "from training.preflight import available_cpus; print(available_cpus())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "1\n"


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nvidia-smi` on PATH that lists four GPUs, one of them cut into a MIG instance."""
    program = tmp_path / "nvidia-smi"
    listing = "\n".join(f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})" for n in range(4))
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{listing}\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 4), ("", 0), ("-1", 0), ("0", 1), ("2,3", 2), ("1, 0", 2), ("0,9,1", 1), ("GPU-1,MIG-1", 2), ("none", 0)],
)
def test_the_visible_devices_are_counted_as_cuda_counts_them(visible: str | None, count: int) -> None:
    environment: dict[str, Any] = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_gpus(environment) == count


@pytest.mark.usefixtures("four_gpus")
def test_the_error_says_that_gpus_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    refused = refusal(settings(tmp_path, "scale.gpu=true"), preflight.this_machine())
    assert "CUDA_VISIBLE_DEVICES=-1 hides them all" in refused


MEMINFO = {"proc/meminfo": "MemTotal:       16384000 kB\nMemFree:          1024 kB\nMemAvailable:    8388608 kB\n"}


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "9\n"}, 8),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": f"{4 * 2**30}\n",
                "sys/fs/cgroup/memory.current": f"{3 * 2**30}\n",
                "sys/fs/cgroup/memory.stat": f"anon {2**30}\ninactive_file {2**30}\nactive_file {2**30}\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "0::/pod/container\n",
                "sys/fs/cgroup/pod/container/memory.max": "max\n",
                "sys/fs/cgroup/pod/memory.max": f"{2**30}\n",
                "sys/fs/cgroup/pod/memory.current": f"{2**31}\n",
            },
            0,
        ),
        (
            {
                "proc/self/cgroup": "7:memory:/docker/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{5 * 2**30}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * 2**30}\n",
                "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {2**30}\n",
            },
            4,
        ),
    ],
)
def test_the_memory_is_that_of_the_machine_or_of_the_tightest_cgroup(
    tmp_path: Path, files: dict[str, str], gib: int
) -> None:
    for name, text in {**MEMINFO, **files}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    assert available_memory(tmp_path) == gib * 2**30


def test_this_machine_has_memory() -> None:
    assert 2**20 < available_memory() < 2**50


def test_zero_without_deepspeed_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    message = refusal(settings(tmp_path, "strategy.name=zero2"))
    assert "strategy.name=zero2 needs DeepSpeed, which is not installed" in message
    with pytest.raises(PreflightError) as caught:
        check(settings(tmp_path, "strategy.name=zero3"), SMALL)
    assert "make env WITH=deepspeed" in caught.value.remedy
