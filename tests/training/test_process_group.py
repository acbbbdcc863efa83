"""What ranks do before they train: the check of a rank, with real faults, and the first rank of every node prepares."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.launch.ranks import on_ranks
from tests.training.runs import ALONE, small_settings
from training import failures, rank_check
from training.errors import DeviceError, SettingsError
from training.launch.task import RankPlace, RankTask, WorkersFailedError
from training.process_group import process_group
from training.rank_check import check_rank
from training.recovery.causes import Cause
from training.worker import run_rank

CPU = torch.device("cpu")
NO_GPU = 99


def test_a_healthy_rank_passes() -> None:
    for connects in (True, False):
        check_rank(CPU, memory_fraction=None, connects=connects)


def test_a_host_without_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_check, "_LEAST_HOST_BYTES", 2**60)
    with pytest.raises(DeviceError, match=rf"^node {socket.gethostname()}, memory of the host: \d+ MiB are free"):
        check_rank(CPU, memory_fraction=None, connects=False)


def test_a_rank_that_cannot_open_a_connection_fails_the_all_reduce() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    held = [os.dup(0) for _ in range(highest)]  # every number below the limit but two, to read files with
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 3, before[1]))
        with pytest.raises(DeviceError, match="loopback all-reduce: "):
            rank_check.check_rank(CPU, memory_fraction=None, connects=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for number in held:
            os.close(number)


def test_a_device_that_computes_wrong_results_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def one_bit_is_wrong(left: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = right(left, other)
        product[3, 5] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", one_bit_is_wrong)
    with pytest.raises(DeviceError, match="CPU: 1 of 4096 entries of a product of matrices are wrong"):
        check_rank(CPU, memory_fraction=None, connects=False)


def test_a_device_that_does_not_answer_fails_at_its_deadline() -> None:
    hung = threading.Event()
    assert rank_check._within(0.05, lambda: str(hung.wait())) == "no answer within 0.05 s"
    hung.set()


def test_a_rank_without_its_gpu_is_a_hardware_error_that_names_node_and_device(tmp_path: Path) -> None:
    settings = small_settings(scale={"gpu": True})
    with pytest.raises(DeviceError):
        run_rank(RankTask(settings=settings, run_directory=tmp_path, attempt=0), replace(ALONE, local_rank=NO_GPU))
    found = failures.cause(tmp_path, attempt=0, ended=WorkersFailedError("status 1"), scale=settings.scale)
    assert found.cause is Cause.HARDWARE
    assert found.headline.startswith(f"rank 0 failed: DeviceError: node {socket.gethostname()}, GPU {NO_GPU}: ")
    assert "take the node out of service" in found.remedy


_TIMEOUT = 2.0


def _rank(place: RankPlace, local_ranks: tuple[int, int], folder: Path) -> float:
    """A rank of two. Those that are first on their node prepare; rank 1 takes longer than a collective may."""

    def prepare() -> None:
        if place.rank == 1:
            time.sleep(2 * _TIMEOUT)  # what is waited for is the time itself
        (folder / f"prepared-{place.rank}").touch()

    started = replace(place, local_rank=local_ranks[place.rank])
    with process_group(started, gpu=False, timeout_seconds=_TIMEOUT, prepare=prepare):
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        return total.item()


@pytest.mark.parametrize(
    ("local_ranks", "prepared"),
    [((0, 0), ["prepared-0", "prepared-1"]), ((0, 1), ["prepared-0"])],
    ids=["a rank on each of two nodes", "two ranks on a node"],
)
def test_one_rank_of_every_node_prepares_and_the_others_wait_longer_than_for_a_collective(
    local_ranks: tuple[int, int], prepared: list[str], tmp_path: Path
) -> None:
    assert on_ranks(2, _rank, local_ranks, tmp_path) == [2.0, 2.0]
    assert sorted(one.name for one in tmp_path.iterdir()) == prepared


def _join(place: RankPlace, codes: Sequence[str]) -> str:
    try:
        with process_group(place, gpu=False, timeout_seconds=3 * _TIMEOUT, code=codes[place.rank]):
            torch.distributed.barrier()  # the store ends with rank 0
            return "joined"
    except SettingsError as error:
        return str(error)
    except RuntimeError:
        return "left alone"


def test_ranks_of_equal_code_join_and_one_with_other_code_than_rank_0_is_refused_with_both_hashes() -> None:
    assert on_ranks(2, _join, ["a" * 64, "a" * 64]) == ["joined", "joined"]
    first, second = on_ranks(2, _join, ["", "b" * 64])
    assert first == "left alone"
    assert f"rank 1 has {'b' * 64}, rank 0 none" in second
