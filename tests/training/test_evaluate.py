"""Evaluation by several ranks is exact: it reports the metrics of rank 0's model, the same bits at every world size."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.config.schema import DataSettings, PrecisionSettings
from training.data.loader import EvalLoader
from training.data.registry import load_dataset
from training.data.types import SampleSpec, Split
from training.evaluate import EvaluationResult, evaluate
from training.launch.task import RankPlace
from training.models.options import SimpleCnnOptions
from training.models.simple_cnn import SimpleCnn, simple_cnn
from training.objectives.classification import Classification
from training.objectives.options import ClassificationOptions
from training.precision import Precision
from training.strategies.data_parallel import DataParallel
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import Strategy

CPU = torch.device("cpu")


def _model() -> SimpleCnn:
    """A network in which active dropout changes the result."""
    torch.manual_seed(0)
    return simple_cnn(SampleSpec(shape=(1, 8, 8), outputs=10), SimpleCnnOptions(dropout=0.5))


def _draw_statistics(model: SimpleCnn, rank: int) -> None:
    """Give batch norm the running statistics of a rank that has trained on its own samples."""
    torch.manual_seed(rank)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            module.running_mean.normal_()


def _optimizer(module: nn.Module) -> SGD:
    return SGD(module.parameters(), lr=0.1)


def _evaluated(strategy: Strategy, split: Split, *, batch: int, rank: int = 0, world: int = 1) -> EvaluationResult:
    return evaluate(
        strategy,
        EvalLoader(split, batch=batch, rank=rank, world=world),
        objective=Classification(10, ClassificationOptions()),
        precision=Precision(PrecisionSettings(), CPU),
        device=CPU,
        world=world,
    )


def _evaluate(place: RankPlace, *, batch: int) -> EvaluationResult:
    model = _model()
    with in_group(place):
        alone = place.world == 1
        strategy: Strategy = SingleProcess(model, _optimizer) if alone else DataParallel(model, _optimizer, device=CPU)
        _draw_statistics(model, place.rank)
        test = load_dataset(DataSettings()).test
        return _evaluated(strategy, test, batch=batch, rank=place.rank, world=place.world)


@pytest.fixture(scope="module")
def alone() -> EvaluationResult:
    """The result of one process, of three batches of 150 and less: of four ranks one has none."""
    return on_ranks(1, _evaluate, batch=150)[0]


def test_loss_and_accuracy_are_those_of_the_whole_split(alone: EvaluationResult) -> None:
    bundle, model = load_dataset(DataSettings()), _model()
    _draw_statistics(model, rank=0)
    inputs, labels = bundle.test.read(torch.arange(len(bundle.test)).numpy())
    with torch.no_grad():
        logits = model.eval()(inputs)
    assert alone.samples == 359
    assert alone.metrics["accuracy"] == int((logits.argmax(dim=1) == labels).sum()) / 359
    assert math.isclose(alone.metrics["loss"], float(cross_entropy(logits, labels)), rel_tol=1e-5)


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_reports_what_one_process_with_rank_0_s_buffers_does(alone: EvaluationResult, world: int) -> None:
    assert on_ranks(world, _evaluate, batch=150) == [alone] * world


def test_evaluation_restores_training_mode_and_keeps_the_statistics() -> None:
    model = _model()
    _draw_statistics(model, rank=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _evaluated(SingleProcess(model, _optimizer), load_dataset(DataSettings()).validation, batch=64)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
