"""State is saved and restored bit for bit under its names, or refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.training.checkpoint.parts import IDENTITY, SmallRun, Values, assert_same, checkpointer, progress, saved_run
from training.checkpoint.manifest import LoopState
from training.checkpoint.state import ChangedBuffers, ModelState, OptimizerState
from training.checkpoint.stateful import Stateful, StateRegistry
from training.checkpoint.store import VerifiedCheckpoint, local_store
from training.errors import ResumeMismatchError


def states(model: nn.Module, optimizer: Optimizer, **others: Stateful) -> StateRegistry:
    return StateRegistry(model=ModelState(model), optimizer=OptimizerState(optimizer, model), **others)


def save_and_open(directory: Path, saved: StateRegistry, *, step: int = 5) -> VerifiedCheckpoint:
    """A checkpoint of the states, reopened."""
    store = local_store(directory)
    with checkpointer(store) as writer:
        writer.save(progress(step), saved, metric=None, final=True)
    return store.open(step, IDENTITY)


def test_a_resumed_run_continues_bit_for_bit_like_an_uninterrupted_one(tmp_path: Path) -> None:
    """Also with a frozen weight, which has no moments, and after the file has changed."""
    for optimizer, learns in (("SGD", True), ("Adam", False), ("AdamW", True)):
        uninterrupted, resumed = SmallRun(optimizer), SmallRun(optimizer, seed=1)
        for run in (uninterrupted, resumed):
            run.model[0].requires_grad_(learns)
        uninterrupted.train(5)
        restored = save_and_open(tmp_path / optimizer, uninterrupted.states())
        resumed.load(restored)
        for file in restored.path.glob("*.safetensors"):
            file.write_bytes(b"\xff" * file.stat().st_size)
        assert_same(resumed.tensors(), uninterrupted.tensors())
        uninterrupted.train(5)
        resumed.train(5)
        assert_same(resumed.tensors(), uninterrupted.tensors())


class Caches(nn.Module):
    """Has buffers that no `state_dict` holds: one that never changes, one that counts, and one that grows."""

    count: Tensor
    grown: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("fixed", "count", "grown"):
            self.register_buffer(name, torch.zeros(1), persistent=False)
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        self.count += 1
        self.grown = torch.arange(len(inputs))
        self.mean += 1
        return inputs


def test_buffers_outside_of_the_state_that_training_changes_are_restored(tmp_path: Path) -> None:
    model, other = nn.Sequential(Caches()), nn.Sequential(Caches())
    saved, loaded = (StateRegistry(model=ModelState(one), buffers=ChangedBuffers(one)) for one in (model, other))
    assert "buffers.safetensors" not in saved.collect().tensors
    model(torch.ones(3, 2))
    assert saved.collect().tensors["buffers.safetensors"].keys() == {"0.count", "0.grown"}
    loaded.restore(save_and_open(tmp_path, saved))
    for (name, value), (_, wanted) in zip(other.named_buffers(), model.named_buffers(), strict=True):
        assert torch.equal(value, wanted), name


def test_moments_are_restored_into_another_grouping_of_the_parameters(tmp_path: Path) -> None:
    _, run = saved_run(tmp_path, 3)
    model = SmallRun(seed=1).model
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": others[::-1]}, {"params": [first], "weight_decay": 0.5}]
    regrouped = torch.optim.AdamW(groups)
    restored = local_store(tmp_path).open(3, IDENTITY)
    states(model, regrouped).restore(restored)
    assert regrouped.param_groups[1]["weight_decay"] == 0.5, "of the settings, not of the checkpoint"
    for (name, parameter), original in zip(model.named_parameters(), run.model.parameters(), strict=True):
        moments, wanted = regrouped.state[parameter], run.optimizer.state[original]
        assert all(torch.equal(moments[key], wanted[key]) for key in wanted), name


def test_channels_last_tensors_are_restored_in_their_layout(tmp_path: Path) -> None:
    def convolution() -> tuple[nn.Module, Optimizer]:
        model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = convolution()
    model(torch.ones(2, 3, 8, 8)).mean().backward()
    optimizer.step()
    restored = save_and_open(tmp_path, states(model, optimizer))
    other, other_optimizer = convolution()
    states(other, other_optimizer).restore(restored)
    for left, right in zip(model.parameters(), other.parameters(), strict=True):
        moment, wanted = other_optimizer.state[right]["exp_avg"], optimizer.state[left]["exp_avg"]
        assert torch.equal(right, left)
        assert torch.equal(moment, wanted)
        assert moment.stride() == wanted.stride()


def test_tied_weights_are_still_tied_after_restoring(tmp_path: Path) -> None:
    def tied() -> tuple[nn.Linear, nn.Linear, nn.Sequential, Optimizer]:
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight
        model = nn.Sequential(first, second)
        return first, second, model, torch.optim.AdamW(model.parameters())

    saved, _, model, optimizer = tied()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    assert "exp_avg/0.weight" in OptimizerState(optimizer, model).state_dict()
    restored = save_and_open(tmp_path, states(model, optimizer))
    first, second, other, other_optimizer = tied()
    states(other, other_optimizer).restore(restored)
    assert first.weight is second.weight
    assert torch.equal(first.weight, saved.weight)
    assert torch.equal(other_optimizer.state[first.weight]["exp_avg"], optimizer.state[saved.weight]["exp_avg"])


def test_a_model_of_another_shape_is_refused_and_not_changed(tmp_path: Path) -> None:
    store, _ = saved_run(tmp_path, 3)
    other = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(
        ResumeMismatchError, match=r"3\.bias is float32 \[4\] in the checkpoint and float32 \[5\] in the model"
    ):
        StateRegistry(model=ModelState(other), optimizer=Values()).restore(store.open(3, IDENTITY))
    assert_same(before, other.state_dict())


def test_a_checkpoint_of_another_optimizer_class_or_without_a_tensor_is_refused_by_name(tmp_path: Path) -> None:
    store, _ = saved_run(tmp_path, 3)
    other = SmallRun("SGD")
    with pytest.raises(ResumeMismatchError, match="optimizer state of AdamW, this run uses SGD"):
        other.load(store.open(3, IDENTITY))
    with pytest.raises(ResumeMismatchError, match=r"4\.bias is absent in the checkpoint"):
        ModelState(SmallRun().model.append(nn.Linear(4, 4))).tensors_to_load(other.model.state_dict())


class Counting(nn.Module):
    """A module whose state holds a value that is not a tensor."""

    def get_extra_state(self) -> int:
        """A number instead of a tensor."""
        return 3


def test_state_that_is_not_a_tensor_and_an_optimizer_of_another_model_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Counting())
    with pytest.raises(ValueError, match=r"state 1\._extra_state is a int"):
        ModelState(model).state_dict()
    with pytest.raises(ValueError, match="6 parameters that are not the model's"):
        OptimizerState(SmallRun().optimizer, SmallRun().model).state_dict()


def test_optimizer_state_with_another_shape_than_its_parameter_is_restored(tmp_path: Path) -> None:
    """As in optimizers that keep a row and a column per matrix."""
    saved, other = SmallRun(), SmallRun(seed=1)
    saved.train()
    weight = saved.model.get_parameter("0.weight")
    saved.optimizer.state[weight]["row"] = torch.arange(8.0)
    other.load(save_and_open(tmp_path, saved.states()))
    assert torch.equal(other.optimizer.state[other.model.get_parameter("0.weight")]["row"], torch.arange(8.0))


def save(directory: Path, run: SmallRun, **others: Stateful) -> VerifiedCheckpoint:
    """A checkpoint of step 3 of the run with other states, reopened."""
    run.train(3 - run.step)
    return save_and_open(directory, run.states(**others), step=3)


def test_tensors_and_values_are_restored_and_new_states_keep_theirs(tmp_path: Path) -> None:
    mixed = {"average": torch.randn(3, dtype=torch.float64), "count": 7, "names": ["a", None], "rate": 0.1}
    back, saved, other, new = Values(), nn.Linear(2, 3), nn.Linear(2, 3), Values(count=1)
    checkpoint = save(tmp_path, SmallRun(), mixed=Values(**mixed), ema=saved)
    assert SmallRun(seed=1).load(checkpoint, mixed=back, ema=other, new=new, empty=Values()) == ["new"]
    assert torch.equal(other.weight, saved.weight)
    assert torch.equal(back.state.pop("average"), mixed.pop("average"))  # type: ignore[arg-type]
    assert back.state == mixed
    assert new.state == {"count": 1}


def test_the_layout_of_the_first_checkpoints_is_kept(tmp_path: Path) -> None:
    """`optimizer`, `precision` and `extra.best_metrics` are the layout of version 0.1, before states had names."""
    precision, best = Values(scale=2.0), Values(metrics=[0.9, 0.8])
    checkpoint = save(
        tmp_path, SmallRun(), precision=precision, best_metrics=best, mine=Values(count=1), ema=nn.Linear(2, 3)
    )
    files = {file.name for file in checkpoint.manifest.files}
    assert files == {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"}
    written = json.loads((checkpoint.path / "state.json").read_text())
    progress = {"step": 3, "epoch": 1, "step_in_epoch": 3, "samples": 192}
    assert LoopState.decode(json.dumps({**written, "progress": progress}).encode()).progress == checkpoint.progress
    assert written == {
        "progress": {**progress, "skipped": 0, "learning_rate": 0.0},
        "optimizer": "AdamW",
        "precision": {"scale": 2.0},
        "extra": {"best_metrics": [0.9, 0.8], "mine": {"count": 1}},
    }
    restored = {"precision": Values(), "best_metrics": Values(), "mine": Values()}
    SmallRun(seed=1).load(checkpoint, **restored, ema=nn.Linear(2, 3))
    assert [value.state for value in restored.values()] == [{"scale": 2.0}, {"metrics": [0.9, 0.8]}, {"count": 1}]


def test_an_optimizer_without_tensors_still_has_a_file(tmp_path: Path) -> None:
    run = SmallRun()
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    checkpoint = save(tmp_path, run)
    assert "optimizer.safetensors" in {file.name for file in checkpoint.manifest.files}
    run.load(checkpoint)
    assert run.optimizer.state_dict()["state"] == {}


@pytest.mark.parametrize("state", [Values(count=1), nn.Linear(1, 1)])
def test_saved_state_that_nothing_restores_is_refused_by_name(tmp_path: Path, state: Stateful) -> None:
    checkpoint = save(tmp_path, SmallRun(), ema=state, alpha=Values(count=1))
    with pytest.raises(ResumeMismatchError, match="state that nothing in this run restores: alpha, ema") as caught:
        SmallRun().load(checkpoint)
    assert str(checkpoint.path) in caught.value.args[0]
    assert "register" in caught.value.remedy


def test_a_state_that_does_not_fit_is_refused_with_the_path_of_the_checkpoint(tmp_path: Path) -> None:
    class Picky(Values):
        def load_state_dict(self, state_dict: dict[str, object]) -> None:
            del state_dict
            raise ResumeMismatchError("count is 1", remedy="count again")

    checkpoint = save(tmp_path, SmallRun(), picky=Values(count=1))
    with pytest.raises(
        ResumeMismatchError, match=f"{re.escape(str(checkpoint.path))} does not fit: count is 1"
    ) as caught:
        SmallRun().load(checkpoint, picky=Picky())
    assert caught.value.remedy == "count again"


def test_a_value_that_is_neither_tensor_nor_json_is_refused_by_the_name_of_its_state(tmp_path: Path) -> None:
    run = SmallRun()
    with (
        checkpointer(local_store(tmp_path)) as writer,
        pytest.raises(TypeError, match="state mine: Object of type set is not JSON serializable"),
    ):
        run.save(writer, mine=Values(seen={1}))


def test_a_name_is_a_lower_case_identifier_that_is_registered_once() -> None:
    registry = StateRegistry(ema=Values())
    with pytest.raises(ValueError, match="state 'ema' of Linear: Values is already registered under that name"):
        registry.register("ema", nn.Linear(1, 1))
    for name in ("", "Ema", "../ema", "ema-1", "1ema"):
        with pytest.raises(ValueError, match=f"state {name!r} of Values: a name matches"):
            registry.register(name, Values())


class Versioned(nn.Linear):
    """A layer that asks for the version of a state, as torchvision's MNASNet does."""

    _version = 2

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,  # noqa: ANN401
    ) -> None:
        assert local_metadata.get("version") == self._version
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_state_is_loaded_with_the_versions_of_the_modules_that_it_is_of() -> None:
    saved = {name: one.clone() for name, one in ModelState(Versioned(2, 2)).state_dict().items()}
    module = nn.Sequential(Versioned(2, 2))
    ModelState(module).load_state_dict({f"0.{name}": one for name, one in saved.items()})
    assert torch.equal(module.get_parameter("0.weight"), saved["weight"])
