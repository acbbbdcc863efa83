"""Memory order and compilation: they change how a step is computed, and the weights by rounding only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import exported, run_alone, small_settings, train
from training import preflight
from training.compute import KERNELS, arranged
from training.config.schema import ComputeSettings
from training.data.types import SampleSpec
from training.errors import PreflightError, SettingsError
from training.launch.task import Outcome
from training.preflight import Machine

CONSTANT: dict[str, Any] = {"name": "constant"}


def assert_close(first: Path, second: Path) -> None:
    """Check that two runs ended in weights that differ by rounding only, but do differ in how they were computed or not at all."""
    other = exported(second)
    for name, value in exported(first).items():
        torch.testing.assert_close(value, other[name], rtol=2e-2, atol=2e-3)


def test_convolutions_have_their_weights_in_channels_last_order_and_other_samples_are_refused() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    images = SampleSpec(shape=(3, 8, 8), outputs=2)
    found = arranged(module, ComputeSettings(channels_last=True), images)(torch.randn(2, 3, 8, 8))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert arranged(module, ComputeSettings(), images) is module
    with pytest.raises(SettingsError, match=r"is for images, but the samples have the shape \(64,\)"):
        arranged(nn.Linear(64, 2), ComputeSettings(channels_last=True), SampleSpec(shape=(64,), outputs=2))


def test_channels_last_trains_resumes_and_exports_the_same_model(tmp_path: Path) -> None:
    def trained(name: str, steps: int, *, last: bool = True) -> Outcome:
        sections = {"schedule": CONSTANT, "compute": {"channels_last": last}, "loop": {"max_steps": steps}}
        return run_alone(small_settings(**sections), tmp_path / name)

    trained("plain", 10, last=False)
    whole = trained("whole", 10)
    assert_close(tmp_path / "plain", tmp_path / "whole")
    trained("parted", 4)
    assert trained("parted", 10) == whole


def test_compiled_steps_train_the_same_weights_and_resume_bit_for_bit(tmp_path: Path) -> None:
    """The last step of the epoch, number 21, has a short batch, which is compiled too."""
    if preflight.find_compiler() is None:
        pytest.skip("no C++ compiler on PATH")

    def trained(name: str, steps: int, mode: str = "default") -> str:
        sections = {"model": {"name": "mlp"}, "schedule": CONSTANT, "compute": {"compile": mode}}
        return train(tmp_path / name, 2, loop={"max_steps": steps}, **sections)

    trained("plain", 24, "off")
    whole = trained("whole", 24)
    assert list((tmp_path / "whole" / KERNELS).glob("*/*.so")), "no kernel was generated"
    assert_close(tmp_path / "plain", tmp_path / "whole")
    trained("parted", 22)
    assert trained("parted", 24) == whole
    losses = [[one.loss for one in select(read_all(tmp_path / name), Evaluated)] for name in ("plain", "whole")]
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-2, atol=1e-3)


def test_a_machine_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    settings = small_settings(compute={"compile": "default"}, run={"directory": str(tmp_path)})
    with pytest.raises(PreflightError, match=r"needs a C\+\+ compiler, and there is no `no-such-compiler` on PATH"):
        preflight.check(settings, Machine(cpus=2, gpus=0))
