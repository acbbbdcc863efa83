"""What a model of the user's own returns and keeps, looked at before it is trained."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model
from torch import Tensor, nn

from training.checkpoint.state import ModelState
from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.export import save_safetensors
from training.models.own import prepare_own_model
from training.models.trial_copy import copy_of
from training.strategies.skeleton import skeleton_of

SPEC = SampleSpec(shape=(3,), outputs=2)

Container = Callable[[Tensor, Tensor], object]


class Returns(nn.Module):
    """Its scores in some container, after something else."""

    def __init__(self, container: Container) -> None:
        super().__init__()
        self.layer, self.container = nn.LazyLinear(2), container

    def forward(self, inputs: Tensor) -> object:
        return self.container(inputs, self.layer(inputs))


@pytest.mark.parametrize(
    ("container", "output"),
    [
        (lambda _, scores: scores, None),
        (lambda other, scores: {"hidden": other, "logits": scores}, None),
        (lambda _, scores: OrderedDict(loss=None, scores=scores), None),
        (lambda _, scores: (None, scores), None),
        (lambda other, scores: (other, scores), 1),
        (lambda other, scores: {"logits": other, "scores": scores}, "scores"),
        (lambda other, scores: {"loss": other.sum(), "scores": scores}, None),
    ],
    ids=["tensor", "logits", "the-only-tensor", "tuple", "index", "key", "after-a-loss"],
)
def test_one_tensor_is_left_of_what_a_model_returns(container: Container, output: str | int | None) -> None:
    model = Returns(container)
    before = torch.get_rng_state()
    prepare_own_model(model, ModelSettings(name="own:model", output=output), SPEC)
    assert model.training
    inputs = torch.ones(4, 3)
    assert torch.equal(model(inputs), model.layer(inputs))
    assert torch.equal(torch.get_rng_state(), before)
    returns_tensor = isinstance(container(inputs, inputs), Tensor)
    assert bool(model._forward_hooks) != returns_tensor, "an exported model would need the hook"


@pytest.mark.parametrize(
    ("container", "output", "said"),
    [
        (
            lambda other, scores: {"a": other, "b": scores},
            "logits",
            "a dict with a, b, and model.output=logits\n.*of a, b",
        ),
        (lambda other, scores: (other, scores), 2, "a tuple of 2, and model.output=2\n.*of 0, 1"),
        (lambda _, scores: scores, "logits", "a Tensor.*, and model.output=logits"),
        (lambda _, __: None, None, "a NoneType, in which no tensor is found\n.*return a tensor"),
    ],
)
def test_outputs_without_the_tensor_are_refused_with_what_there_is(
    container: Container,
    output: str | int | None,
    said: str,
) -> None:
    with pytest.raises(SettingsError, match=said):
        prepare_own_model(Returns(container), ModelSettings(name="own:model", output=output), SPEC)


class Keeps(nn.Module):
    """A layer, and what `keep` adds to the model."""

    def __init__(self, keep: Callable[[nn.Module], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        keep(self)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        return outputs


def views(module: nn.Module) -> None:
    table = torch.arange(12.0).reshape(2, 6)
    module.register_buffer("first", table[0])
    module.register_buffer("second", table[1])
    module.register_buffer("expanded", torch.ones(1, 3).expand(4, 3))
    module.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
    module.register_buffer("scalar", torch.tensor(2.0))
    module.register_buffer("complex", torch.ones(2, dtype=torch.complex64))


def test_buffers_that_are_views_are_saved_and_restored(tmp_path: Path) -> None:
    first, second = Keeps(views), Keeps(views)
    values = {name: value.clone() for name, value in first.state_dict().items()}
    for model in (first, second):
        prepare_own_model(model, ModelSettings(name="own:model"), SPEC)
    assert all(torch.equal(value, values[name]) for name, value in first.state_dict().items())
    save_safetensors(first, tmp_path / "weights", {})
    load_model(second, tmp_path / "weights")
    assert all(torch.equal(value, values[name]) for name, value in second.state_dict().items())
    ModelState(second).load_state_dict(values)


class Auxiliary(nn.Module):
    """Has a second output in training only, like GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> object:
        scores = self.layer(inputs)
        return (scores, scores + 1) if self.training else scores


def test_outputs_that_training_alone_has_are_left_out() -> None:
    model = Auxiliary()
    prepare_own_model(model, ModelSettings(name="own:model"), SPEC)
    inputs = torch.ones(4, 3)
    assert torch.equal(model.eval()(inputs), model.train()(inputs))


class FromData(nn.Module):
    """Takes its scale from the first batch that it trains on, and keeps a lock and an empty weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.lock = nn.Linear(3, 2), threading.Lock()
        self.empty, self.also_empty = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))
        self.scale = nn.Parameter(torch.ones(()))
        self.has_started = False

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.has_started:
            self.scale.data, self.has_started = 1 / (inputs.std() + 1e-6), True
        scores: Tensor = self.layer(inputs * self.scale)
        return scores


@pytest.mark.parametrize("has_lock", [True, False])
def test_the_look_before_training_is_not_the_first_batch(has_lock: bool) -> None:  # noqa: FBT001 - a parameter
    model = FromData()
    if not has_lock:
        del model.lock  # so that it can be copied
    prepare_own_model(model, ModelSettings(name="own:model"), SPEC)
    assert (model.scale.item(), model.has_started) == (1.0, False)


class Growing(Keeps):
    """Makes a buffer while it trains."""

    mean: Tensor | None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and self.mean is None:
            self.mean = inputs.mean(0)
        return super().forward(inputs)


class Picky(Keeps):
    """Refuses samples of zeros."""

    def forward(self, inputs: Tensor) -> Tensor:
        if not inputs.any():
            raise ValueError("zeros")
        return super().forward(inputs)


def test_a_model_that_does_not_take_zeros_is_not_refused() -> None:
    model = Picky(lambda one: one.register_buffer("part", torch.arange(4.0)[:2]))
    prepare_own_model(model, ModelSettings(name="own:model"), SPEC)
    assert model(torch.ones(1, 3)).shape == (1, 2)
    assert model.get_buffer("part").untyped_storage().nbytes() == 8


class Extra(Keeps):
    """Has a state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"steps": 1}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Keeps(_save_biases_only), r"layer.weight is not in its state_dict\(\)"),
        (lambda: Growing(lambda one: one.register_buffer("mean", None)), "mean changes with the first batch"),
        (lambda: Extra(lambda _: None), "_extra_state is no tensor"),
        (lambda: Keeps(_shared_memory), "decoder shares memory with another parameter|layer.weight shares memory"),
        (lambda: Keeps(_view_of_a_weight), "row shares memory with a parameter"),
        (lambda: Keeps(lambda one: one.register_buffer("graph", torch.eye(3).to_sparse())), "graph is a sparse tensor"),
    ],
    ids=["a-part-is-not-saved", "lazy-buffer", "extra-state", "two-parameters", "view-of-a-weight", "sparse"],
)
def test_a_state_that_cannot_be_restored_is_refused_by_name(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        prepare_own_model(make(), ModelSettings(name="own:model"), SPEC)


def _shared_memory(module: nn.Module) -> None:
    module.register_parameter("decoder", nn.Parameter(module.get_parameter("layer.weight").data.t()))


def _view_of_a_weight(module: nn.Module) -> None:
    module.register_buffer("row", module.get_parameter("layer.weight").data[0])


def _save_biases_only(module: nn.Module) -> None:
    """As adapters are saved beside a frozen model."""

    def keep_biases(_: nn.Module, state: dict[str, object], *__: object) -> None:
        for name in [name for name in state if "bias" not in name]:
            del state[name]

    module.register_state_dict_post_hook(keep_biases)  # type: ignore[no-untyped-call]


class Replacing(nn.Module):
    """Has another parameter after the call of a method."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.layer, self.method = nn.Linear(3, 2), method

    def train(self, mode: bool = True) -> Replacing:  # noqa: FBT001 - as of nn.Module
        if self.method == "train" and mode:
            self.layer.weight = nn.Parameter(self.layer.weight.detach() * 2)
        return super().train(mode)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.method == "forward":
            self.layer.weight = nn.Parameter(self.layer.weight.detach() * 2)
        outputs: Tensor = self.layer(inputs)
        return outputs


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Replacing("train"), r"replaces its parameter layer\.weight"),
        (Replacing("forward"), r"replaces its parameter layer\.weight"),
        (
            nn.Sequential(torch.jit.script(nn.Linear(3, 2))),
            r"^0 of model\.name=own:model is a torch\.jit\.ScriptModule",
        ),
    ],
    ids=["train", "forward", "scripted"],
)
def test_a_model_that_replaces_its_weights_or_is_scripted_is_refused(model: nn.Module, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        prepare_own_model(model, ModelSettings(name="own:model"), SPEC)


class Uncopyable(nn.Module):
    """Keeps what cannot be copied, in attributes and in what they keep."""

    def __init__(self, fails: object = None) -> None:
        super().__init__()
        self.layer, self.empty = nn.Linear(3, 2), torch.ones(1)
        self.lock, self.module = threading.Lock(), threading
        self.kept = {"condition": [threading.Condition()], "numbers": (one for one in range(3)), "own": [0]}
        self.fails = fails

    def __getstate__(self) -> dict[str, object]:
        if self.fails is not None:
            raise ValueError(self.fails)
        return self.__dict__


def test_a_copy_of_a_model_shares_what_cannot_be_copied() -> None:
    model = Uncopyable()
    for other in (copy_of(model), skeleton_of(model)):
        assert isinstance(other, Uncopyable)
        assert (other.lock, other.module) == (model.lock, threading)
        assert other.kept["numbers"] is model.kept["numbers"]
        assert other.kept["own"] is not model.kept["own"]
        assert other.layer.weight is not model.layer.weight
    with pytest.raises(SettingsError, match=r"the model cannot be copied \(copy\.deepcopy\): .*what fails"):
        skeleton_of(Uncopyable("what fails"))
