"""The division of models into stages."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from training.config.schema import ModelSettings, StrategySettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.parts import Part, parts_of
from training.models.registry import MODELS, build_model, check_stages
from training.strategies.stages import balanced, divide, keep_only

IMAGES = SampleSpec(shape=(3, 32, 32), outputs=10)
TOKENS = SampleSpec(shape=(16,), outputs=64, vocabulary=64, is_sequence=True)
DIVISIBLE = [
    ("mlp", {"hidden": [32, 16]}, IMAGES),
    ("resnet18", {"stem": "cifar"}, IMAGES),
    ("resnet50", {}, IMAGES),
    ("simple_cnn", {}, IMAGES),
    ("transformer", {"width": 32, "layers": 3, "heads": 2}, TOKENS),
]


def model_of(name: str, options: dict[str, Any], spec: SampleSpec) -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelSettings(name=name, options=options), spec)


def inputs_of(spec: SampleSpec) -> Tensor:
    return torch.randint(spec.vocabulary, (2, *spec.shape)) if spec.vocabulary else torch.randn(2, *spec.shape)


@pytest.mark.parametrize(("name", "options", "spec"), DIVISIBLE, ids=[one[0] for one in DIVISIBLE])
def test_a_model_s_promised_parts_compute_what_it_does(name: str, options: dict[str, Any], spec: SampleSpec) -> None:
    model, inputs = model_of(name, options, spec).eval(), inputs_of(spec)
    hidden = inputs.clone()
    for part in parts_of(model):
        hidden = part.forward(hidden)
    assert torch.equal(hidden, model(inputs))
    promised = MODELS.find(name).parts
    assert promised is not None
    count = promised(MODELS.find(name).options.model_validate(options))
    assert len(divide(model, count, model=name)) == count
    with pytest.raises(SettingsError, match=f"which has {count} parts with parameters"):
        divide(model, count + 1, model=name)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.data())
def test_no_division_has_a_smaller_largest_group(sizes: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, len(sizes)))
    found = balanced(sizes, groups)
    assert [number for one in found for number in one] == list(range(len(sizes)))
    assert all(found)
    assert len(found) == groups
    smallest = min(
        max(sum(sizes[start:end]) for start, end in zip((0, *cuts), (*cuts, len(sizes)), strict=True))
        for cuts in combinations(range(1, len(sizes)), groups - 1)
    )
    assert max(sum(sizes[one.start : one.stop]) for one in found) == smallest


def test_a_stage_keeps_its_own_tensors_under_the_names_of_the_whole_model() -> None:
    whole = model_of("simple_cnn", {}, IMAGES)
    names, last = set(whole.state_dict()), divide(whole, 2, model="simple_cnn")[1]
    keep_only(whole, [last])
    kept = set(whole.state_dict())
    assert kept < names
    assert {name.partition(".")[0] for name in kept} == {"stage3", "head"}
    whole.load_state_dict(
        dict(whole.state_dict())
    )  # as from a checkpoint: without the versions of torch's own dictionaries


def test_weights_that_two_stages_share_are_kept_by_both_under_both_names() -> None:
    for index in (0, 2):
        whole = model_of("transformer", {"width": 32, "layers": 1, "heads": 2}, TOKENS)
        keep_only(whole, [divide(whole, 3, model="transformer")[index]])
        state = whole.state_dict(keep_vars=True)
        assert state["tokens.weight"] is state["head.weight"]


class Forgetful(nn.Module):
    """Names a part without its second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def parts(self) -> list[Part]:
        """The first layer."""
        return [Part(names=("first",), forward=self.first)]


def test_a_model_of_your_own_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"parts\(\) of model.name=own leaves out second.bias, second.weight"):
        divide(Forgetful(), 1, model="own")
    with pytest.raises(SettingsError, match=r"model\.name=own has no parts to divide"):
        divide(nn.Linear(2, 2), 2, model="own")


def test_a_model_that_cannot_be_divided_is_refused_before_processes_start() -> None:
    two = StrategySettings(name="pipeline", stages=2)
    with pytest.raises(SettingsError, match=r"model\.name=rnn has no parts") as refused:
        check_stages(ModelSettings(name="rnn"), two)
    assert "use one of mlp, resnet101, resnet18, resnet50, simple_cnn, transformer" in refused.value.remedy
    with pytest.raises(SettingsError, match=r"strategy.stages=5 is more than the 4 parts of model.name=simple_cnn"):
        check_stages(ModelSettings(name="simple_cnn"), StrategySettings(name="pipeline", stages=5))
    check_stages(ModelSettings(name="rnn"), StrategySettings())
    check_stages(ModelSettings(name="own.module:model"), two)
