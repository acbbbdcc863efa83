"""The moving average of the weights: its values, its place in evaluation and export, and its survival of restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import exported, run_alone, small_settings, train
from training.checkpoint.store import committed_steps
from training.errors import ResumeMismatchError, SettingsError
from training.weight_average import WeightAverage

DECAY = 0.9


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def values(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all of the module's tensors."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def change(module: nn.Module) -> None:
    """Move every weight, and the statistics of batch norm."""
    with torch.no_grad():
        module(torch.randn(8, 3))
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_the_average_follows_the_formula_for_weights_and_statistics() -> None:
    module = network()
    average = WeightAverage(module, decay=DECAY)
    average.start()
    expected = {name: value.double() for name, value in values(module).items() if value.is_floating_point()}
    for step in range(1, 120):
        change(module)
        average.update(step)
        decay = min(DECAY, (1 + step) / (10 + step))
        for name, value in values(module).items():
            if name in expected:
                expected[name] = decay * expected[name] + (1 - decay) * value.double()
    found = average.state_dict()
    assert found.keys() == expected.keys()
    assert "1.running_var" in found
    assert "1.num_batches_tracked" not in found
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-5, atol=1e-6)


def test_a_buffer_that_a_pass_assigns_anew_is_averaged_as_one_that_it_changes_in_place() -> None:
    """One that has another shape has no average: it is as it is."""
    module = nn.Module()
    module.register_buffer("scale", torch.ones(()))
    module.register_buffer("queue", torch.zeros(1))
    average = WeightAverage(module, decay=DECAY)
    average.start()
    module.scale, module.queue = torch.full((), 3.0), torch.ones(2)
    average.update(1000)
    assert average.state_dict()["scale"].item() == pytest.approx(0.9 + 0.3)
    assert torch.equal(average.state_dict()["queue"], torch.ones(2))
    with average.in_model():
        assert module.scale.item() == pytest.approx(0.9 + 0.3)
    assert module.scale.item() == 3


def test_the_model_has_the_average_only_inside_the_context() -> None:
    module = network()
    average = WeightAverage(module, decay=DECAY)
    average.start()
    change(module)
    average.update(1)
    trained, averaged = values(module), {name: value.clone() for name, value in average.state_dict().items()}
    inside = dict[str, Tensor]()

    def interrupted() -> None:
        with average.in_model():
            inside.update(values(module))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    for name, value in averaged.items():
        assert torch.equal(inside[name], value)
        assert torch.equal(average.state_dict()[name], value)
        assert not torch.equal(inside[name], trained[name])
    for name, value in values(module).items():
        assert torch.equal(value, trained[name])


def test_weights_of_16_bits_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"0\.weight has the type torch\.bfloat16"):
        WeightAverage(network().bfloat16(), decay=DECAY)


def test_frozen_weights_have_no_average_and_tied_ones_have_one() -> None:
    module = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False), "c": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    module["c"].requires_grad_(requires_grad=False)
    average = WeightAverage(module, decay=DECAY)
    average.start()
    assert list(average.state_dict()) == ["a.weight"]


def test_an_average_of_another_model_is_refused() -> None:
    average = WeightAverage(network(), decay=DECAY)
    other = WeightAverage(nn.Linear(3, 4), decay=DECAY)
    other.start()
    with pytest.raises(ResumeMismatchError, match=r"average of the weights is of another model: 0\.bias differs"):
        average.tensors_to_load(other.state_dict())


def test_evaluations_and_the_exported_model_have_the_average_and_training_goes_on_without_it(tmp_path: Path) -> None:
    plain = run_alone(small_settings(), tmp_path / "plain")
    averaged = run_alone(small_settings(ema={"decay": DECAY}), tmp_path / "ema")
    assert plain.weights_sha256 != averaged.weights_sha256
    newest = max(committed_steps(tmp_path / "ema" / "checkpoints"))
    saved = {name: _checkpoint(tmp_path / name, newest) for name in ("plain", "ema")}
    trained, average = (load_file(saved["ema"] / f"{name}.safetensors") for name in ("model", "ema"))
    for name, value in load_file(saved["plain"] / "model.safetensors").items():
        assert torch.equal(value, trained[name]), "the average must not change what is trained"
    final = exported(tmp_path / "ema")
    assert {name for name in average if torch.equal(average[name], final[name])} == average.keys()
    first, second = ([one.loss for one in select(read_all(tmp_path / name), Evaluated)] for name in ("plain", "ema"))
    assert len(first) == len(second) == 3
    assert all(one != other for one, other in zip(first, second, strict=True))


def _checkpoint(run: Path, step: int) -> Path:
    (found,) = (run / "checkpoints").glob(f"*{step}")
    return found


def test_a_run_stopped_anywhere_and_resumed_ends_in_the_same_average(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {"ema": {"decay": DECAY}, "schedule": {"name": "constant"}}
    whole = run_alone(small_settings(**sections), tmp_path / "whole")
    for stop_after in (1, 20, 21, 33):
        folder = tmp_path / f"parted after {stop_after}"
        run_alone(small_settings(**sections, loop={"max_steps": stop_after}), folder)
        assert run_alone(small_settings(**sections), folder).weights_sha256 == whole.weights_sha256, folder.name


def test_an_average_that_is_switched_on_later_starts_from_the_trained_weights(tmp_path: Path) -> None:
    constant = {"name": "constant"}
    run_alone(small_settings(schedule=constant, loop={"max_steps": 21}), tmp_path / "run")
    run_alone(small_settings(schedule=constant, ema={"decay": DECAY}, loop={"max_steps": 22}), tmp_path / "run")
    before = load_file(_checkpoint(tmp_path / "run", 21) / "model.safetensors")
    after = _checkpoint(tmp_path / "run", 22)
    trained, average = load_file(after / "model.safetensors"), load_file(after / "ema.safetensors")
    decay = min(DECAY, 23 / 32)
    for name, value in average.items():
        torch.testing.assert_close(value, decay * before[name] + (1 - decay) * trained[name])


def test_two_ranks_evaluate_and_export_the_same_average(tmp_path: Path) -> None:
    """Batch norm's statistics differ between the ranks; those of rank 0 count."""
    run = tmp_path / "run"
    assert train(run, 2, ema={"decay": DECAY}, loop={"max_steps": 8})
    model, average = exported(run), load_file(_checkpoint(run, 8) / "ema.safetensors")
    assert all(torch.equal(model[name], value) for name, value in average.items())
    assert len([one for one in select(read_all(run), Evaluated) if one.split == "test"]) == 1
