"""Registration of state under names, and resuming with missing or unknown names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.training.checkpoint.parts import IDENTITY, SmallRun, Values, checkpointer, progress
from training.checkpoint.stateful import Stateful, StateRegistry
from training.checkpoint.store import VerifiedCheckpoint, local_store
from training.errors import ResumeMismatchError


def save(directory: Path, run: SmallRun, **others: Stateful) -> VerifiedCheckpoint:
    """A checkpoint of step 3 of the run with other states, reopened."""
    run.train(3 - run.step)
    store = local_store(directory)
    with checkpointer(store) as writer:
        writer.save(progress(run.step), run.states(**others), metric=None, final=True)
    return store.open(3, IDENTITY)


def test_tensors_and_values_are_restored_and_new_states_keep_theirs(tmp_path: Path) -> None:
    mixed = {"average": torch.randn(3, dtype=torch.float64), "count": 7, "names": ["a", None], "rate": 0.1}
    back, saved, other, new = Values(), nn.Linear(2, 3), nn.Linear(2, 3), Values(count=1)
    checkpoint = save(tmp_path, SmallRun(), mixed=Values(**mixed), ema=saved)
    assert SmallRun(seed=1).load(checkpoint, mixed=back, ema=other, new=new, empty=Values()) == ["new"]
    assert torch.equal(other.weight, saved.weight)
    assert torch.equal(back.state.pop("average"), mixed.pop("average"))  # type: ignore[arg-type]
    assert back.state == mixed
    assert new.state == {"count": 1}


def test_each_state_with_tensors_has_a_file_and_one_without_has_none(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, SmallRun(), ema=nn.Linear(2, 3), best_metrics=Values(metrics=[0.5]), precision=Values())
    files = {file.name for file in checkpoint.manifest.files}
    assert files == {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"}


def test_the_layout_of_the_first_checkpoints_is_kept(tmp_path: Path) -> None:
    """`optimizer`, `precision` and `extra.best_metrics` are the layout of version 0.1, before states had names."""
    precision, best = Values(scale=2.0), Values(metrics=[0.9, 0.8])
    checkpoint = save(tmp_path, SmallRun(), precision=precision, best_metrics=best, mine=Values(count=1))
    written = json.loads((checkpoint.path / "state.json").read_text())
    assert written == {
        "progress": {"step": 3, "epoch": 1, "step_in_epoch": 3, "samples": 192},
        "optimizer": "AdamW",
        "precision": {"scale": 2.0},
        "extra": {"best_metrics": [0.9, 0.8], "mine": {"count": 1}},
    }
    restored = {"precision": Values(), "best_metrics": Values(), "mine": Values()}
    SmallRun(seed=1).load(checkpoint, **restored)
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
