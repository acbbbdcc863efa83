"""Memory order and compilation: they change how a step is computed, and the weights by rounding only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from observability.runlog import Evaluated, read_all, select
from tests.training.launch.ranks import on_ranks
from tests.training.runs import run_alone, small_settings
from training import preflight
from training.compute import KERNELS, arranged
from training.config.schema import ComputeSettings
from training.data.types import SampleSpec
from training.errors import PreflightError, SettingsError
from training.launch.task import RankPlace, RankTask
from training.preflight import Machine
from training.worker import run_rank

CONSTANT: dict[str, Any] = {"name": "constant"}
MLP: dict[str, Any] = {"name": "mlp"}


def exported(run: Path) -> dict[str, torch.Tensor]:
    """The final weights of a run."""
    return load_file(run / "model" / "model.safetensors")


def assert_close(first: Path, second: Path) -> None:
    """Check that two runs ended in weights that differ by rounding only, but do differ in how they were computed or not at all."""
    other = exported(second)
    for name, value in exported(first).items():
        torch.testing.assert_close(value, other[name], rtol=2e-2, atol=2e-3)


def test_convolutions_have_their_weights_in_channels_last_order() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    images = SampleSpec(shape=(3, 8, 8), outputs=2)
    found = arranged(module, ComputeSettings(channels_last=True), images)(torch.randn(2, 3, 8, 8))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert arranged(module, ComputeSettings(), images) is module


def test_channels_last_of_samples_without_height_and_width_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"is for images, but the samples have the shape \(64,\)"):
        arranged(nn.Linear(64, 2), ComputeSettings(channels_last=True), SampleSpec(shape=(64,), outputs=2))


def test_channels_last_trains_resumes_and_exports_the_same_model(tmp_path: Path) -> None:
    last: dict[str, Any] = {"channels_last": True}
    run_alone(small_settings(schedule=CONSTANT, loop={"max_steps": 10}), tmp_path / "plain")
    whole = run_alone(small_settings(schedule=CONSTANT, compute=last, loop={"max_steps": 10}), tmp_path / "whole")
    assert_close(tmp_path / "plain", tmp_path / "whole")
    run_alone(small_settings(schedule=CONSTANT, compute=last, loop={"max_steps": 4}), tmp_path / "parted")
    resumed = run_alone(small_settings(schedule=CONSTANT, compute=last, loop={"max_steps": 10}), tmp_path / "parted")
    assert resumed.weights_sha256 == whole.weights_sha256


def _train(place: RankPlace, *, folder: str, steps: int, mode: str) -> str:
    torch.set_num_threads(1)
    settings = small_settings(
        model=MLP,
        schedule=CONSTANT,
        compute={"compile": mode},
        loop={"max_steps": steps},
        scale={"launcher": "torchrun", "workers": place.world} if place.world > 1 else {},
    )
    return run_rank(RankTask(settings=settings, run_directory=Path(folder), attempt=0), place).weights_sha256


def _trained(folder: Path, steps: int, *, mode: str = "default", ranks: int = 2) -> str:
    folder.mkdir(exist_ok=True)
    return on_ranks(ranks, _train, folder=str(folder), steps=steps, mode=mode)[0]


def test_compiled_steps_train_the_same_weights_and_resume_bit_for_bit(tmp_path: Path) -> None:
    """The last step of the epoch, number 21, has a short batch, which is compiled too."""
    if preflight.find_compiler() is None:
        pytest.skip("no C++ compiler on PATH")
    _trained(tmp_path / "plain", 24, mode="off")
    whole = _trained(tmp_path / "whole", 24)
    assert list((tmp_path / "whole" / KERNELS).glob("*/*.so")), "no kernel was generated"
    assert_close(tmp_path / "plain", tmp_path / "whole")
    _trained(tmp_path / "parted", 22)
    assert _trained(tmp_path / "parted", 24) == whole
    losses = [[one.loss for one in select(read_all(tmp_path / name), Evaluated)] for name in ("plain", "whole")]
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-2, atol=1e-3)


def test_a_machine_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    settings = small_settings(compute={"compile": "default"}, run={"directory": str(tmp_path)})
    with pytest.raises(PreflightError, match=r"needs a C\+\+ compiler, and there is no `no-such-compiler` on PATH"):
        preflight.check(settings, Machine(cpus=2, gpus=0))
