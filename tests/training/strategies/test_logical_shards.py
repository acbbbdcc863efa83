"""Logical shards: the same weights, optimizer state, statistics and metrics with 1, 2 and 4 workers, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from observability.runlog import Evaluated, Notice, Restored, read_all, select
from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings, steps_of
from training.callbacks import sample_ledger as ledger
from training.checkpoint.store import local_store
from training.config.schema import TrainingSettings

STEPS = 24
"""The 21st is the last of its epoch, with 13 samples: five shards have two, three have one."""

LOOP: dict[str, Any] = {"max_steps": STEPS, "log_sample_ids": True}
SHARDS: dict[str, int] = {"logical_shards": 8}


def settings(workers: int, **loop: int) -> TrainingSettings:
    """Batch norm, dropout, augmentation, clipping, and weights of samples that are no whole numbers."""
    return small_settings(
        loop={**LOOP, "clip_norm": 0.5, **loop},
        schedule={"name": "constant"},
        objective={"options": {"class_weights": [1 / (3 + digit) for digit in range(10)]}},
        scale={"launcher": "torchrun" if workers > 1 else "plain", "workers": workers},
    )


def train(folder: Path, workers: int, **loop: int) -> str:
    """Train, or resume; returns the hash of the exported weights."""
    run = run_alone if workers == 1 else run_world
    return run(settings(workers, **loop), folder).weights_sha256


@dataclass(frozen=True)
class Record:
    """What a run leaves that may not depend on the number of workers."""

    files: dict[str, str]
    steps: list[tuple[float, float, dict[str, float]]]
    evaluations: list[tuple[str, float, dict[str, float]]]
    samples: dict[int, list[int]]


def record(folder: Path) -> Record:
    """Hashes of the tensors of the last checkpoint, and what was logged and read."""
    manifest = local_store(folder / "checkpoints").manifests()[-1]
    assert manifest.step == STEPS
    return Record(
        files={file.name: file.sha256 for file in manifest.files if file.name.endswith(".safetensors")},
        steps=[(step.loss, step.gradient_norm, step.metrics) for step in steps_of(folder)],
        evaluations=[(one.split, one.loss, one.metrics) for one in select(read_all(folder), Evaluated)],
        samples=ledger.consumed_ids(folder),
    )


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The hash and the folder of an uninterrupted run of one worker."""
    folder = tmp_path_factory.mktemp("one") / "run"
    return train(folder, 1, **SHARDS), folder


@pytest.mark.extended
@pytest.mark.parametrize("workers", [2, 4])
def test_more_workers_train_the_same_bits(tmp_path: Path, one_worker: tuple[str, Path], workers: int) -> None:
    digest, folder = one_worker
    assert train(tmp_path / "run", workers, **SHARDS) == digest
    found, expected = record(tmp_path / "run"), record(folder)
    assert found == expected
    assert {"model.safetensors", "optimizer.safetensors"} <= found.files.keys()
    assert len(found.steps) == STEPS
    assert found.samples[1] == list(range(1293))


def test_a_run_that_changes_its_workers_ends_in_the_same_bits(tmp_path: Path, one_worker: tuple[str, Path]) -> None:
    run = tmp_path / "run"
    for workers, steps in ((1, 3), (2, 9), (4, 22)):
        train(run, workers, **SHARDS, max_steps=steps)
    assert train(run, 1, **SHARDS) == one_worker[0]
    assert [event.step for event in select(read_all(run), Restored)] == [3, 9, 22]
    assert ledger.consumed_ids(run) == ledger.consumed_ids(one_worker[1])
    notes = [event.message for event in select(read_all(run), Notice)]
    assert any(note.startswith("8 logical shards, 4 on each of 2 ranks") for note in notes)


def test_what_has_no_equal_bits_is_refused() -> None:
    cases = {
        "loop.logical_shards=6": "logical_shards=6 must be a power of two: … nearest: 4 or 8",
        "loop.accumulation=2": "accumulation=2 contradicts logical_shards=8, each of which is a micro-batch",
        "loop.global_batch=6": "global_batch=6 must be a multiple of logical_shards=8; nearest: 8",
        "scale.workers=3": "scale.workers=3 must divide loop.logical_shards=8, … nearest: 2",
        "strategy.name=fsdp2": "loop.logical_shards=8 needs strategy.name=ddp, got fsdp2",
        "communication.hook=bf16": "communication.hook=bf16 is for the gradients that DDP sends",
        "run.deterministic=false": "loop.logical_shards=8 promises equal bits and needs run.deterministic=true",
        "compute.compile=max-autotune": "compute.compile=max-autotune chooses kernels by their speed",
    }
    assert_refused(cases, "loop.logical_shards=8")
