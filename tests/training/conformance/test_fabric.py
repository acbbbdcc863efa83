"""The ranks of the fabric part, as torchrun starts them on a node: real processes, gloo, and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.training.cli.command import ROOT
from tests.training.conformance.local_job import RANKS
from training.conformance.all_reduce import bus_factor
from training.conformance.facts import FABRIC_FILE, FabricFacts
from training.device import FAKE_GPUS
from training.script.variables import OUTPUT_VARIABLE

_SIZE = 1 << 20


def test_two_ranks_sum_and_read_what_one_of_them_has_written(tmp_path: Path) -> None:
    """With GPUs that do not exist, as in a sandbox, so that the ranks compute on the CPU."""
    words = ["-m", "training.conformance", "fabric", "--gpus", "--size-bytes", str(_SIZE)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), OUTPUT_VARIABLE: str(tmp_path), FAKE_GPUS: "gpu-0,gpu-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = FabricFacts.model_validate(json.loads((tmp_path / FABRIC_FILE).read_text()))
    assert [one.rank for one in facts.ranks] == [0, 1]
    assert not facts.has_gpus
    assert {one.read_sha256 for one in facts.ranks} == {facts.written_sha256}
    measured = facts.all_reduce
    assert (measured.backend, measured.size_bytes, measured.is_correct) == ("gloo", _SIZE, True)
    assert measured.bus_bytes_per_second == _SIZE / measured.seconds * bus_factor(RANKS)
    assert [one.name for one in tmp_path.iterdir()] == [FABRIC_FILE], "the shared file is removed"


def test_the_bus_bandwidth_of_two_ranks_is_the_algorithms_and_of_many_almost_twice_that() -> None:
    assert bus_factor(2) == 1
    assert bus_factor(16) == 1.875
