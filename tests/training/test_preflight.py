"""A run that does not fit this machine is refused before anything starts."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.engines.small_disk import small_disk
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


def test_a_run_that_fits_is_accepted_with_a_host_that_is_not_used(tmp_path: Path) -> None:
    check(settings(tmp_path), SMALL)
    check(settings(tmp_path, "metrics.host=192.0.2.1", "metrics.exporter=none"), SMALL)


def test_too_many_workers_are_refused_with_a_number_that_fits(tmp_path: Path) -> None:
    two_nodes = ["launcher=torchrun", "workers=8", "nodes=2", "rendezvous=h:1"]
    for overrides, gpus, *parts in (
        (["workers=4"], 0, "scale.workers=4 needs 4 = 4 CPUs", "has 2", "--num-workers 2 fits"),
        (["cpus_per_worker=2"], 0, "needs 2 x 2 CPUs = 4 CPUs", "--num-workers 1 fits"),
        (["cpus_per_worker=8"], 0, "2 x 8 CPUs = 16 CPUs", "--num-workers 1 --set scale.cpus_per_worker=2 fits"),
        (two_nodes, 0, "needs 4 = 4 CPUs on each machine, this machine has 2", "--num-workers 4 fits"),
        (["gpu=true"], 0, "needs one GPU per worker (scale.workers=2), and none was found"),
        (["gpu=true"], 1, "needs 2 GPUs", "has 1", "--use-gpu --num-workers 1 fits"),
    ):
        wanted = settings(tmp_path, *(f"scale.{one}" for one in overrides))
        refused = refusal(wanted, Machine(cpus=2, gpus=gpus))
        assert [part for part in parts if part not in refused] == [], refused


def with_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Put an `nvidia-smi` on PATH that prints these lines."""
    driver = folder / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.join(lines)}")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


FP8 = ("scale.gpu=true", "scale.workers=1", "precision.mode=fp8")
ONE_GPU = Machine(cpus=2, gpus=1)


def test_fp8_is_refused_on_a_machine_whose_gpus_all_lack_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(tmp_path, monkeypatch, "7.5", "8.6")
    refused = refusal(settings(tmp_path, *FP8), ONE_GPU)
    assert "precision.mode=fp8 needs GPUs of compute capability 8.9 or higher, this machine's have 8.6" in refused
    assert "precision.mode=bf16" in refused
    with_driver(tmp_path, monkeypatch, "8.6", "12.0")
    check(settings(tmp_path, *FP8), ONE_GPU)


def test_workers_of_a_remote_cluster_are_not_checked_against_this_machine_but_its_address_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        check(settings(tmp_path, "scale.workers=64", f"scale.address=127.0.0.1:{port}"), SMALL)
    refused = refusal(settings(tmp_path, f"scale.address=ray://127.0.0.1:{port}"))
    assert f"scale.address=ray://127.0.0.1:{port}: no Ray cluster answers" in refused
    for address in ("somewhere", ":6379", "host:port", "127.0.0.1:99999"):
        assert f"scale.address={address}" in refusal(settings(tmp_path, f"scale.address={address}"))


def test_the_default_number_of_workers_shrinks_to_the_machine_and_an_explicit_one_is_kept(tmp_path: Path) -> None:
    one_cpu = Machine(cpus=1, gpus=0)
    fitted, notice = fit_workers(settings(tmp_path), one_cpu)
    assert fitted.scale.workers == 1
    assert fitted.loop == settings(tmp_path).loop
    assert notice == "1 worker instead of the default 2: this machine has 1 CPU"
    check(fitted, one_cpu)
    fitted, notice = fit_workers(settings(tmp_path, "scale.gpu=true"), Machine(cpus=8, gpus=1))
    assert fitted.scale.workers == 1
    assert "1 GPU" in notice
    assert fit_workers(settings(tmp_path), SMALL) == (settings(tmp_path), "")
    explicit = settings(tmp_path, "scale.workers=2")
    assert fit_workers(explicit, one_cpu) == (explicit, "")


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert f"run.directory={tmp_path / 'runs'} cannot be written: File exists" in refusal(settings(tmp_path))
    refused = refusal(settings(tmp_path, "run.directory=/proc/self"))
    assert "run.directory=/proc/self cannot be written" in refused


def test_a_full_disk_is_refused_with_the_free_and_the_needed_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "runs", size="8m"):
        assert "has 8 MiB free, a run needs 256 MiB" in refusal(settings(tmp_path))


def test_metrics_that_cannot_be_served_here_are_refused(tmp_path: Path) -> None:
    """192.0.2.0/24 is reserved for documentation (RFC 5737)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = refusal(settings(tmp_path, f"metrics.port={port}"))
    assert f"metrics.port={port} is in use on 127.0.0.1" in refused
    assert "metrics.port=0" in refused
    assert "metrics.host=192.0.2.1" in refusal(settings(tmp_path, "metrics.host=192.0.2.1"))
    refused = refusal(settings(tmp_path, "metrics.exporter=ray"))
    assert "metrics.exporter=ray" in refused
    assert "metrics.exporter=prometheus" in refused


def test_missing_files_of_a_dataset_are_refused(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "data.dataset=cifar10", f"data.path={tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="nowhere"):
        check(wanted, SMALL)


def with_files(root: Path, files: Mapping[str, str]) -> Path:
    """A root folder with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root


GROUP, QUOTA = "proc/self/cgroup", "sys/fs/cgroup/cpu/cpu.cfs_quota_us"
PERIOD = {"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}


def test_the_cgroup_quota_bounds_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    pod = {"pod/container/cpu.max": "max 100000\n", "pod/cpu.max": "300000 100000\n"}
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 8),
        ({GROUP: "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({GROUP: "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({GROUP: "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({GROUP: "0::/pod/container\n", **{f"sys/fs/cgroup/{name}": text for name, text in pod.items()}}, 3),
        ({GROUP: "4:cpu,cpuacct:/docker/x\n0::/\n", QUOTA: "200000\n", **PERIOD}, 2),
        ({GROUP: "4:cpu,cpuacct:/\n", QUOTA: "-1\n", **PERIOD}, 8),
    ]
    for number, (files, cpus) in enumerate(cases):
        assert available_cpus(with_files(tmp_path / str(number), files)) == cpus, files


def test_affinity_bounds_the_cpus() -> None:
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    program += "from training.preflight import available_cpus; print(available_cpus())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "1\n"


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nvidia-smi` on PATH that lists four GPUs, one of them cut into a MIG instance."""
    listing = [f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})" for n in range(4)]
    with_driver(tmp_path, monkeypatch, *listing, "  MIG 1g.18gb Device 0: (UUID: MIG-1)")


@pytest.mark.usefixtures("four_gpus")
def test_the_visible_devices_are_counted_as_cuda_counts_them() -> None:
    assert visible_gpus({}) == 4
    counts = {"": 0, "-1": 0, "0": 1, "2,3": 2, "1, 0": 2, "0,9,1": 1, "GPU-1,MIG-1": 2, "none": 0}
    assert {visible: visible_gpus({"CUDA_VISIBLE_DEVICES": visible}) for visible in counts} == counts


@pytest.mark.usefixtures("four_gpus")
def test_the_error_says_that_gpus_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    refused = refusal(settings(tmp_path, "scale.gpu=true"), preflight.this_machine())
    assert "CUDA_VISIBLE_DEVICES=-1 hides them all" in refused


MEMINFO = {"proc/meminfo": "MemTotal:       16384000 kB\nMemFree:          1024 kB\nMemAvailable:    8388608 kB\n"}


def test_the_memory_is_that_of_the_machine_or_of_the_tightest_cgroup(tmp_path: Path) -> None:
    def group(place: str, **files: str) -> dict[str, str]:
        return {f"sys/fs/cgroup/{place}memory.{name}": f"{text}\n" for name, text in files.items()}

    stat = f"anon {2**30}\ninactive_file {2**30}\nactive_file {2**30}"
    pod = {**group("pod/container/", max="max"), **group("pod/", max=str(2**30), current=str(2**31))}
    old = {"limit_in_bytes": str(5 * 2**30), "usage_in_bytes": str(2 * 2**30), "stat": f"total_inactive_file {2**30}"}
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 8),
        ({GROUP: "0::/\n", **group("", max="max", current="9")}, 8),
        ({GROUP: "0::/\n", **group("", max=str(4 * 2**30), current=str(3 * 2**30), stat=stat)}, 3),
        ({GROUP: "0::/pod/container\n", **pod}, 0),
        ({GROUP: "7:memory:/docker/x\n", **group("memory/", **old)}, 4),
    ]
    for number, (files, gib) in enumerate(cases):
        assert available_memory(with_files(tmp_path / str(number), {**MEMINFO, **files})) == gib * 2**30, files
    assert 2**20 < available_memory() < 2**50


def test_zero_without_deepspeed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    message = refusal(settings(tmp_path, "strategy.name=zero2"))
    assert "strategy.name=zero2 needs DeepSpeed, which is not installed" in message
    assert "make env WITH=deepspeed" in message
