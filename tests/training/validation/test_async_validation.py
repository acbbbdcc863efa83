"""Runs that validate next to the training: the metrics and the weights of those that do not, whatever becomes of the evaluator."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from observability.runlog import Evaluated, Notice, read_all, select
from tests.engines.report_table import skipped as service_skipped
from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from tests.waiting import wait_until
from training.checkpoint.late_metrics import LateMetrics, read
from training.checkpoint.store import local_store
from training.config.schema import TrainingSettings
from training.launch.task import RankTask
from training.validation import validator
from training.validation.process import EvaluatorDiedError, EvaluatorProcess

STEPS_PER_EPOCH = 21
KEEP_ALL = {"every_steps": 1000, "keep_last": 100}
Metrics = dict[int, dict[str, float]]


def settings(validation: str, **sections: dict[str, Any]) -> TrainingSettings:
    """Five epochs of digits, of which every checkpoint is kept."""
    loop = {"epochs": 5, "validation": validation, **sections.pop("loop", {})}
    return small_settings(loop=loop, checkpoint=KEEP_ALL, **sections)


def validated(folder: Path, *, asynchronous: bool | None = None) -> Metrics:
    """The metrics of a run's validations by step."""
    return {
        event.step: {"loss": event.loss, **event.metrics}
        for event in select(read_all(folder), Evaluated)
        if event.split == "validation" and asynchronous in {None, event.is_asynchronous}
    }


def warnings(folder: Path) -> list[str]:
    return [notice.message for notice in select(read_all(folder), Notice) if notice.level == "warning"]


def skipped(folder: Path) -> set[int]:
    """Steps that the run says it has not validated."""
    found = (re.search(r"\(step (\d+)\) is not validated: ", message) for message in warnings(folder))
    return {int(match[1]) for match in found if match}


def assert_same_metrics(folder: Path, inline: Path) -> None:
    """Assert that every due epoch was validated, bit for bit as between the epochs, or reported, and some next to the training."""
    found, wanted = validated(folder), validated(inline)
    assert found.keys() | skipped(folder) == wanted.keys()
    assert not found.keys() & skipped(folder)
    assert found == {step: wanted[step] for step in found}
    assert validated(folder, asynchronous=True)


def evaluators(rank: psutil.Process) -> list[psutil.Process]:
    return [child for child in rank.children() if "training.validation" in child.cmdline()]


class Killed(EvaluatorProcess):
    """An evaluator that is killed as soon as it has something to do, so many times."""

    left = 0

    def request(self, step: int) -> None:
        super().request(step)
        if Killed.left:
            Killed.left -= 1
            os.kill(self.pid, signal.SIGKILL)


def killed(times: int, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validator, "EvaluatorProcess", Killed)
    patch.setattr(Killed, "left", times)


def test_an_evaluator_that_is_killed_once_is_replaced_and_its_metrics_equal_those_between_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = run_alone(settings("inline"), tmp_path / "inline")
    killed(1, monkeypatch)
    beside = run_alone(settings("async"), tmp_path / "async")
    assert beside == inline
    assert_same_metrics(tmp_path / "async", tmp_path / "inline")
    assert STEPS_PER_EPOCH in validated(tmp_path / "async", asynchronous=True)
    assert "the evaluator has died (killed by SIGKILL) and is started again" in warnings(tmp_path / "async")
    assert not evaluators(psutil.Process())
    first = local_store(tmp_path / "async" / "checkpoints").path(STEPS_PER_EPOCH)
    assert read(first) == LateMetrics(metrics=validated(tmp_path / "inline")[STEPS_PER_EPOCH])


def test_after_a_second_death_the_ranks_evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(2, monkeypatch)
    run_alone(settings("async", loop={"epochs": 12}), tmp_path)
    between = validated(tmp_path, asynchronous=False)
    assert len(between) > 1
    assert between.keys() | skipped(tmp_path) == {STEPS_PER_EPOCH * epoch for epoch in range(1, 13)}
    assert any("the evaluator has died again (killed by SIGKILL;" in message for message in warnings(tmp_path))


def test_an_evaluator_that_ends_with_an_error_is_reported_with_its_last_line(tmp_path: Path) -> None:
    task = RankTask(settings=settings("async"), run_directory=tmp_path, attempt=0)
    evaluator = _WithoutTask(task, gpu=None)
    with pytest.raises(EvaluatorDiedError, match=r"^status 1: KeyError: 'settings'$"):
        evaluator.answers(timeout=500)  # it has less priority than whatever else runs
    evaluator.close()


def test_an_evaluator_dies_with_its_rank_even_while_it_starts(tmp_path: Path) -> None:
    task = RankTask(settings=settings("async"), run_directory=tmp_path, attempt=0)
    rank = multiprocessing.get_context("fork").Process(target=_start_and_wait, args=(task,))
    rank.start()
    assert rank.pid is not None
    started = psutil.Process(rank.pid)
    wait_until(lambda: bool(evaluators(started)))
    [evaluator] = evaluators(started)
    rank.kill()
    wait_until(lambda: not evaluator.is_running())


def _start_and_wait(task: RankTask) -> None:
    EvaluatorProcess(task, gpu=None)
    signal.pause()


class _WithoutTask(EvaluatorProcess):
    """An evaluator that is given nothing to do."""

    def _send(self, line: bytes) -> None:
        super()._send(b'{"task": {}}\n' if b'"task"' in line else line)


@pytest.mark.extended
def test_what_the_end_of_a_run_does_not_wait_for_is_validated_when_it_is_resumed(tmp_path: Path) -> None:
    """Two epochs end before the evaluator has its imports."""
    two: dict[str, Any] = {"loop": {"epochs": 2, "validation_wait": 0.01}, "schedule": {"name": "constant"}}
    run_alone(settings("async", **two), tmp_path / "run")
    assert STEPS_PER_EPOCH not in validated(tmp_path / "run")
    assert any("step 21 is not validated 0.01 s after the end" in message for message in warnings(tmp_path / "run"))
    three: dict[str, Any] = {"loop": {"epochs": 3}, "schedule": {"name": "constant"}}
    resumed = run_alone(settings("async", **three), tmp_path / "run")
    inline = run_alone(settings("inline", **three), tmp_path / "inline")
    assert resumed == inline
    assert validated(tmp_path / "run") == validated(tmp_path / "inline")


BESIDE: dict[str, dict[str, Any]] = {
    "ddp": {"ema": {"decay": 0.9}},
    "fsdp2 in bf16": {"strategy": {"name": "fsdp2"}, "precision": {"mode": "bf16"}},
    "pipeline": {"strategy": {"name": "pipeline", "stages": 2}, "loop": {"accumulation": 2}},
    "local SGD": {"communication": {"local_steps": 4, "start_step": 1}},
    "zero3": {"strategy": {"name": "zero3"}},
}
"""Ways to train with two workers; of an average of the weights that is evaluated, too."""


@pytest.mark.extended
@pytest.mark.parametrize("way", BESIDE)
def test_two_workers_get_the_same_metrics_and_weights_either_way(tmp_path: Path, way: str) -> None:
    # Up to 21 CPU seconds: each strategy trains with two ranks and an evaluator, which import torch and, for ZeRO, DeepSpeed.
    if way == "zero3" and importlib.util.find_spec("deepspeed") is None:
        service_skipped("DeepSpeed", "not installed", "make env WITH=deepspeed")
    world = {"scale": {"launcher": "torchrun", "workers": 2}, **BESIDE[way]}
    inline = run_world(settings("inline", **world), tmp_path / "inline")
    assert run_world(settings("async", **world), tmp_path / "async") == inline
    assert_same_metrics(tmp_path / "async", tmp_path / "inline")


def test_settings_with_which_the_metrics_would_differ_are_refused() -> None:
    sharded = "strategy.name=fsdp2 strategy.parameters=bf16"
    cases = {
        "loop.validation=inline loop.validation_device=gpu": "validation_device=gpu is for loop.validation=async",
        "loop.validation_device=gpu": "validation_device=gpu needs scale.gpu=true",
        "scale.gpu=true precision.mode=fp16": "computes no fp16",
        "scale.gpu=true precision.mode=fp8": "computes no fp8",
        f"{sharded} scale.workers=2 scale.launcher=torchrun": "parameters=bf16",
    }
    assert_refused(cases, "loop.validation=async")
