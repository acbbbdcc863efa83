"""Evaluation sharded over ranks is exact, even if the world size does not divide the split."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.training.launch.ranks import on_ranks
from training.config.schema import DataSettings, PrecisionSettings
from training.data.loader import EvalLoader
from training.data.registry import load_dataset
from training.data.types import SampleSpec
from training.evaluate import EvaluationResult, evaluate
from training.launch.task import RankPlace
from training.models.options import SimpleCnnOptions
from training.models.simple_cnn import SimpleCnn, simple_cnn
from training.objectives.classification import Classification
from training.precision import Precision
from training.process_group import process_group

CPU = torch.device("cpu")


def _model() -> SimpleCnn:
    """A network in which batch statistics or active dropout change the result."""
    torch.manual_seed(0)
    model = simple_cnn(SampleSpec(shape=(1, 8, 8), classes=10), SimpleCnnOptions(dropout=0.5))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            module.running_mean.normal_()
    return model


def _evaluate(place: RankPlace, *, batch: int) -> EvaluationResult:
    torch.set_num_threads(1)
    split = load_dataset(DataSettings()).test
    loader = EvalLoader(split, batch=batch, rank=place.rank, world=place.world)
    with process_group(place, gpu=False, timeout_seconds=30):
        return evaluate(
            _model(),
            loader,
            objective=Classification(),
            precision=Precision(PrecisionSettings(), CPU),
            device=CPU,
            world=place.world,
        )


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_ranks_agree_on_the_loss_and_accuracy_of_the_whole_split(world: int) -> None:
    """359 test digits are divisible by no world size but 1 and by no batch of 50."""
    bundle = load_dataset(DataSettings())
    inputs, labels = bundle.test.read(torch.arange(len(bundle.test)).numpy())
    with torch.no_grad():
        logits = _model().eval()(inputs)
    results = on_ranks(world, _evaluate, batch=50)
    for result in results:
        assert result == results[0]
        assert result.samples == 359
        assert result.metrics["accuracy"] == int((logits.argmax(dim=1) == labels).sum()) / 359
        assert math.isclose(result.metrics["loss"], float(cross_entropy(logits, labels)), rel_tol=1e-5)


def test_evaluation_restores_training_mode_and_keeps_the_statistics() -> None:
    model = _model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loader = EvalLoader(load_dataset(DataSettings()).validation, batch=64, rank=0, world=1)
    evaluate(
        model, loader, objective=Classification(), precision=Precision(PrecisionSettings(), CPU), device=CPU, world=1
    )
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
