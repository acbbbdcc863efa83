"""Pipelines: the division of a model, the weights of one process, a part of the memory, and every sample once."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from observability.runlog import Evaluated, FlopsCounted, Notice, Restored, TrainingStarted, read_all, select
from tests.training.config.refused import assert_refused
from tests.training.runs import LANGUAGE, exported, losses_of, steps_of, train
from tests.training.strategies.test_fully_sharded import assert_close
from training.callbacks.sample_ledger import consumed_ids
from training.config.schema import ModelSettings, StrategySettings
from training.data.types import SampleSpec
from training.errors import NonFiniteLossError, SettingsError
from training.models.parts import Part, parts_of
from training.models.registry import MODELS, build_model, check_stages
from training.strategies.stages import StageModule, balanced, check_parts, divide, keep_only

ONE_EPOCH = 21
"""Steps of the digits' 1293 training samples; the last one has 13."""

MLP: dict[str, Any] = {
    "model": {"name": "mlp", "options": {"hidden": [64, 64, 64]}},
    "loop": {"max_steps": ONE_EPOCH + 1, "accumulation": 2, "log_sample_ids": True},
    "schedule": {"name": "constant"},
}
CNN: dict[str, Any] = {
    "model": {"name": "simple_cnn", "options": {"dropout": 0.0}},
    "loop": {"max_steps": 20, "accumulation": 2},
    "schedule": {"name": "constant"},
    "ema": {"decay": 0.9},
}
REPEATED: dict[str, Any] = {**MLP, "model": {"name": "tests.training.strategies.test_pipeline:repeated"}}
TRANSFORMER: dict[str, Any] = {**LANGUAGE, "loop": {**LANGUAGE["loop"], "accumulation": 2}}
TWO: dict[str, Any] = {"name": "pipeline", "stages": 2}
INTERLEAVED: dict[str, Any] = {**TWO, "schedule": "interleaved", "stages_per_rank": 2}


def repeated(spec: SampleSpec) -> nn.Module:
    """An activation and a linear layer are used twice, the latter by both stages."""
    activation, hidden = nn.Tanh(), nn.Linear(32, 32)
    layers = [nn.Flatten(), nn.Linear(64, 32), activation, hidden, activation, hidden, nn.Linear(32, spec.outputs)]
    return nn.Sequential(*layers)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one process, by the name of their recipe."""
    root = tmp_path_factory.mktemp("one-process")
    recipes = {"mlp": MLP, "repeated": REPEATED, "transformer": TRANSFORMER, "cnn": CNN}
    for name, recipe in recipes.items():
        train(root / name, 1, **recipe)
    return {name: root / name for name in recipes}


@pytest.mark.parametrize(
    ("name", "recipe", "ranks", "strategy"),
    [
        ("mlp", MLP, 2, TWO),
        ("mlp", MLP, 2, INTERLEAVED),
        ("repeated", REPEATED, 2, TWO),
        ("transformer", TRANSFORMER, 4, TWO),
        ("cnn", CNN, 2, TWO),
    ],
    ids=["1f1b", "interleaved", "layers-that-are-used-twice", "2x2-with-shared-weights", "batch-norm-and-average"],
)
def test_twenty_steps_are_those_of_one_process(
    one_process: dict[str, Path],
    tmp_path: Path,
    name: str,
    recipe: dict[str, Any],
    ranks: int,
    strategy: dict[str, Any],
) -> None:
    one, piped = one_process[name], tmp_path / "pipeline"
    train(piped, ranks, **recipe, strategy=strategy)
    assert_close(one, piped)
    for ours, plain in zip(steps_of(piped), steps_of(one), strict=True):
        assert ours.gradient_norm == pytest.approx(plain.gradient_norm, rel=1e-3, abs=1e-6)
        assert ours.samples == plain.samples
    for first, second in zip(*(select(read_all(run), Evaluated) for run in (one, piped)), strict=True):
        assert second.samples == first.samples
        assert second.loss == pytest.approx(first.loss, rel=1e-3)
    assert (
        select(read_all(piped), TrainingStarted)[0].parameters == select(read_all(one), TrainingStarted)[0].parameters
    )
    counted = [select(read_all(run), FlopsCounted)[0].per_sample for run in (one, piped)]
    # Flash attention multiplies queries and keys once more in its backward pass; what is counted without values does not.
    assert counted[1] == pytest.approx(counted[0], rel=0.02)
    if recipe is MLP:
        assert consumed_ids(piped) == consumed_ids(one)


class Skipping(nn.Module):
    """Its parts leave out the second use of the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.activation = nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.activation(self.first(inputs))
        outputs: Tensor = self.activation(self.second(hidden))
        return outputs

    def parts(self) -> list[Part]:
        return [Part(names=(name,), forward=getattr(self, name)) for name in ("first", "activation", "second")]


class Doubled(nn.Sequential):
    """A forward pass of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]
        return 2 * outputs


class Lending(nn.Module):
    """Its second part uses the weight of the first one in evaluation only."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.lent, self.head = nn.Linear(64, 64), nn.Linear(64, spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._end(self._begin(inputs))

    def _begin(self, inputs: Tensor) -> Tensor:
        return torch.tanh(self.lent(inputs.flatten(1)))

    def _end(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.head(features if self.training else self.lent(features))
        return outputs

    def parts(self) -> list[Part]:
        return [
            Part(names=("lent",), forward=self._begin),
            Part(names=("head", "lent"), forward=self._end),
        ]


def test_a_weight_that_a_second_stage_uses_in_evaluation_only_trains_as_in_one_process(tmp_path: Path) -> None:
    recipe = {**MLP, "model": {"name": f"{__name__}:Lending"}, "loop": {"max_steps": 6, "accumulation": 2}}
    train(tmp_path / "one", 1, **recipe)
    train(tmp_path / "piped", 2, **recipe, strategy=TWO)
    assert_close(tmp_path / "one", tmp_path / "piped")


class Misnamed(nn.Module):
    """The second part uses a layer that the first one names."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._end(self._begin(inputs))

    def _begin(self, inputs: Tensor) -> Tensor:
        return torch.tanh(self.first(inputs.flatten(1)))

    def _end(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.norm(features))
        return outputs

    def parts(self) -> list[Part]:
        return [Part(names=("first", "norm"), forward=self._begin), Part(names=("head",), forward=self._end)]


def test_a_part_that_uses_a_layer_of_another_stage_is_refused_by_name() -> None:
    model = Misnamed(SampleSpec(shape=(64,), outputs=2))
    second = divide(model, 2, model="own")[1]
    keep_only(model, [second])
    with pytest.raises(SettingsError, match="a part of the model uses norm, which it does not name"):
        StageModule(second, model)(torch.ones(2, 64))
    with pytest.raises(SettingsError, match="uses norm"):
        _ = model.norm.weight
    assert not hasattr(model.norm, "unknown")


def test_parts_that_compute_another_model_are_refused_before_the_first_step() -> None:
    batch, own = torch.randn(2, 4), Skipping()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    with pytest.raises(SettingsError, match=r"of model.name=own compute something else than the model: the outputs"):
        check_parts(own, batch, model="own")
    check_parts(nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.BatchNorm1d(8)), batch, model="own")
    assert parts_of(Doubled(nn.Linear(4, 4))) == []
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())
    assert all(one.grad is None for one in own.parameters())


def test_the_log_says_how_the_model_is_divided_and_how_long_a_rank_is_idle(tmp_path: Path) -> None:
    train(tmp_path, 2, **{**MLP, "loop": {"max_steps": 3, "accumulation": 4}}, strategy=TWO)
    notes = [one.message for one in select(read_all(tmp_path), Notice)]
    assert "pipelines of 2 ranks, 1f1b: stages of 8,320 + 4,810 parameters" in notes
    for step in steps_of(tmp_path):
        assert step.communication_seconds is not None
        parts = [step.forward_seconds, step.backward_seconds, step.communication_seconds, step.optimizer_seconds]
        assert min(parts) > 0
        assert sum(parts) <= step.seconds
        assert len(step.rank_seconds) == 2


def test_bf16_and_recomputed_activations_train_like_those_of_one_process(tmp_path: Path) -> None:
    recipe = {
        **TRANSFORMER,
        "loop": {**TRANSFORMER["loop"], "max_steps": 8},
        "precision": {"mode": "bf16"},
        "compute": {"activation_checkpointing": "full"},
    }
    train(tmp_path / "one", 1, **recipe)
    train(tmp_path / "pipeline", 2, **recipe, strategy=TWO)
    # bf16 has 8 bits of mantissa: a relative rounding error of 2**-8 in each operation.
    assert losses_of(tmp_path / "pipeline") == pytest.approx(losses_of(tmp_path / "one"), rel=2e-2)
    assert {value.dtype for value in exported(tmp_path / "pipeline").values()} == {torch.float32}


def test_every_rank_refuses_the_same_step_that_is_not_finite(tmp_path: Path) -> None:
    wild = {"optimizer": {"name": "sgd", "learning_rate": 1e30}, "loop": {"accumulation": 2, "clip_norm": None}}
    with pytest.raises(NonFiniteLossError, match=r"step 2: the gradient is not finite \(norm nan\)"):
        train(tmp_path, 2, **{**MLP, **wild}, strategy=TWO)


@pytest.mark.extended
def test_a_run_with_dropout_that_is_stopped_and_resumed_ends_in_the_same_weights(tmp_path: Path) -> None:
    recipe = {**CNN, "model": {"name": "simple_cnn"}, "loop": {"max_steps": ONE_EPOCH + 3, "accumulation": 2}}
    whole = train(tmp_path / "whole", 2, **recipe, strategy=TWO)
    train(tmp_path / "parted", 2, **{**recipe, "loop": {"max_steps": 7, "accumulation": 2}}, strategy=TWO)
    assert train(tmp_path / "parted", 2, **recipe, strategy=TWO) == whole
    assert [one.step for one in select(read_all(tmp_path / "parted"), Restored)] == [7]
    without = {**recipe, "model": {"name": "simple_cnn", "options": {"dropout": 0.0}}}
    assert train(tmp_path / "without", 2, **without, strategy=TWO) != whole


@pytest.mark.extended
def test_a_run_goes_on_under_other_strategies_and_numbers_of_ranks(tmp_path: Path) -> None:
    recipe = {**TRANSFORMER, "ema": {"decay": 0.9}}
    run, ddp = tmp_path / "run", {"name": "ddp"}
    for steps, ranks, strategy in ((6, 2, ddp), (10, 2, TWO), (16, 4, INTERLEAVED), (20, 1, ddp)):
        train(run, ranks, **{**recipe, "loop": {**TRANSFORMER["loop"], "max_steps": steps}}, strategy=strategy)
    train(tmp_path / "one", 1, **recipe)
    assert [one.step for one in select(read_all(run), Restored)] == [6, 10, 16]
    assert_close(tmp_path / "one", run)


def test_a_combination_that_cannot_work_is_refused() -> None:
    assert_refused({"strategy.stages=2": "stages=2 is a setting of name=pipeline, got name=ddp"})
    two, rounds = "strategy.stages=2", "strategy.schedule=interleaved strategy.stages_per_rank=2"
    cases = {
        "strategy.stages=1": "name=pipeline needs stages=2 or more",
        f"{two} strategy.stages_per_rank=2": "stages_per_rank=2 needs schedule=interleaved",
        f"{two} strategy.schedule=interleaved": "schedule=interleaved needs stages_per_rank=2 or more",
        f"{two} strategy.offload=true": "offload: settings of name=fsdp2 and hsdp, got name=pipeline",
        "strategy.stages=3 scale.workers=4": "must divide scale.workers=4; nearest: scale.workers=6 or strategy.stages=2",
        f"{two} scale.launcher=plain scale.workers=1": "scale.launcher=plain runs one process",
        "strategy.stages=4 scale.workers=4 loop.accumulation=3": "=3 … at least strategy.stages=4; nearest: 4",
        f"{two} {rounds} loop.accumulation=5 loop.global_batch=60": "equal rounds of that many or more; nearest: 4",
        f"{two} loop.global_batch=1": "loop.global_batch=1 cannot be divided so among 1 pipelines, raise it",
        f"{two} scale.workers=4 loop.accumulation=3": "strategy.stages x loop.accumulation = 2 x 3 = 6; nearest: 60",
    }
    assert_refused(cases, "strategy.name=pipeline")


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


@pytest.mark.parametrize(("name", "options", "spec"), DIVISIBLE, ids=[one[0] for one in DIVISIBLE])
def test_a_model_s_promised_parts_compute_what_it_does(name: str, options: dict[str, Any], spec: SampleSpec) -> None:
    model, shape = model_of(name, options, spec).eval(), (2, *spec.shape)
    inputs = torch.randint(spec.vocabulary, shape) if spec.vocabulary else torch.randn(shape)
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
