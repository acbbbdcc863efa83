"""The components of a rank: model, strategy, objective, checkpoint store, and all that is saved and restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from observability.objective_metrics import Metric
from training.checkpoint.manifest import Identity
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import FOLDER, CheckpointStore, local_store
from training.compute import compile_steps
from training.config.schema import TrainingSettings
from training.data.order import BatchPlan
from training.data.own_draws import check_own_draws
from training.data.reading import read_samples
from training.data.types import DataBundle, SampleSpec
from training.factories import is_import_path
from training.flops import FlopCount
from training.identity import identity_of
from training.models.hidden_state import refuse_counting_objective, refuse_hidden_state
from training.objectives.objective import Objective, check_metrics
from training.objectives.registry import build_objective, ranking_metric
from training.optim import build_optimizer, peak_learning_rate
from training.precision import Precision
from training.rank.agreement import check_agreement
from training.rank.context import RankContext
from training.rank.first_samples import check_first_samples
from training.recomputation import check_recomputation, recompute_blocks
from training.run_model import build_run_model
from training.strategies.build import build_strategy, states_of
from training.strategies.gradient_hooks import refuse_nonlinear_gradients, refuse_nonlinear_hooks
from training.strategies.shardable import (
    refuse_changed_weights,
    refuse_foreign_uses,
    refuse_mixed_types,
    refuse_scalars,
)
from training.strategies.stages import check_parts
from training.strategies.strategy import Strategy
from training.weight_average import WeightAverage


@dataclass(frozen=True, kw_only=True)
class Components:
    """What the callbacks and the loop of a rank share.

    Attributes:
        bundle: the dataset.
        plan: how epochs are cut into steps.
        strategy: the distributed model and its optimizer.
        average: moving average of the weights; None without.
        objective: loss and metrics.
        ranked_by: the metric of the validation split that ranks checkpoints.
        precision: number format and gradient scaler.
        flops: counts the operations of a step; None where they are not reported.
        store: the run's local checkpoints.
        bucket: the run's bucket, on rank 0 and if it has one.
        identity: what a checkpoint of this run must agree with.
        states: everything that is saved and restored.
    """

    bundle: DataBundle
    plan: BatchPlan
    strategy: Strategy
    average: WeightAverage | None
    objective: Objective
    ranked_by: Metric
    precision: Precision
    flops: FlopCount | None
    store: CheckpointStore
    bucket: RunBucket | None
    identity: Identity
    states: StateRegistry


def build_components(context: RankContext, bundle: DataBundle) -> Components:
    """Build the components for a dataset. The random generators are seeded; every rank builds in the same order.

    Raises:
        SettingsError: model, objective and data do not fit each other or the strategy.
    """
    settings, place = context.settings, context.place
    objective = _build_objective(context, bundle)
    strategy = _build_strategy(context, bundle, objective)
    average = None if settings.ema.decay is None else WeightAverage(strategy.module, decay=settings.ema.decay)
    precision = Precision(settings.precision, context.device)
    return Components(
        bundle=bundle,
        plan=BatchPlan(
            size=len(bundle.train),
            global_batch=settings.loop.global_batch,
            world=context.share.world,
            accumulation=settings.micro_batches,
        ),
        strategy=strategy,
        average=average,
        objective=objective,
        ranked_by=ranking_metric(objective, settings.checkpoint, name=settings.objective.name),
        precision=precision,
        flops=FlopCount() if place.rank == 0 and settings.metrics.flops else None,
        store=local_store(context.task.run_directory / FOLDER),
        bucket=_open_bucket(context),
        identity=identity_of(settings, bundle, world=place.world, code=context.task.code),
        states=StateRegistry(**states_of(strategy, context.report), precision=precision),
    )


def _build_strategy(context: RankContext, bundle: DataBundle, objective: Objective) -> Strategy:
    settings = context.settings
    samples = cache(partial(_two_samples, bundle, context.device))  # read once, by the first check that needs them

    def inputs() -> Tensor:
        return samples()[0].clone()  # a model may write to its inputs

    module = build_run_model(settings, bundle.spec, context.device, report=context.report)
    if is_import_path(settings.model.name):
        rebuild = partial(_rebuilt, settings, bundle.spec, context.device)
        refuse_hidden_state(module, rebuild, model=settings.model.name, spec=bundle.spec)
    if is_import_path(settings.objective.name):
        refuse_counting_objective(objective, module, inputs(), samples()[1])
    if (mode := settings.compute.activation_checkpointing) != "off":
        recompute_blocks(module, mode, model=settings.model.name)
        if is_import_path(settings.model.name):
            is_compiled = settings.compute.compile != "off"
            check_recomputation(module, inputs(), model=settings.model.name, is_compiled=is_compiled)
    if context.place.world > 1:
        has_broadcast = settings.strategy.name == "ddp" and settings.loop.logical_shards is None
        check_agreement(module, model=settings.model.name, device=context.device, has_broadcast=has_broadcast)
    if settings.strategy.name == "pipeline":
        check_parts(module, inputs(), model=settings.model.name)
    if is_import_path(settings.model.name):
        _refuse_undistributable(module, context, inputs=inputs)
    peak_rate = peak_learning_rate(settings.optimizer, settings.loop.global_batch)
    strategy = build_strategy(
        module,
        partial(build_optimizer, settings=settings.optimizer, learning_rate=peak_rate),
        settings=settings,
        place=context.place,
        device=context.device,
        report=context.report,
    )
    if strategy.note:
        context.report(strategy.note)
    compile_steps(strategy, settings.compute, run_directory=context.task.run_directory)
    return strategy


def _refuse_undistributable(module: nn.Module, context: RankContext, *, inputs: Callable[[], Tensor]) -> None:
    """Refuse a model of the user's own that the strategy could not divide among the ranks, or would train otherwise than one process."""
    settings, is_one_process = context.settings, context.place.world == 1
    strategy, model, shards = settings.strategy, settings.model.name, settings.loop.logical_shards
    is_averaged = not is_one_process and shards is None and strategy.name != "pipeline"
    is_divided = not is_one_process and (strategy.is_zero or strategy.is_fully_sharded)
    if is_divided:
        refuse_scalars(module, strategy=strategy.name, model=model)
    if not is_one_process and strategy.is_fully_sharded:
        refuse_mixed_types(module, strategy=strategy.name, model=model)
        refuse_foreign_uses(module, inputs(), strategy=strategy.name, model=model)
    if not is_one_process or shards is not None or settings.may_skip_steps:
        name, world = strategy.name, shards or context.place.world
        refuse_changed_weights(module, inputs(), strategy=name, model=model, is_divided=is_divided, world=world)
    if not is_one_process or shards is not None:
        has_parts = strategy.is_fully_sharded or strategy.name == "zero3"
        refuse_nonlinear_hooks(module, model=model, has_parts=has_parts and not is_one_process)
    if is_averaged or settings.precision.mode == "fp16" or settings.loop.accumulation > 1:
        refuse_nonlinear_gradients(module, inputs(), model=model)


def _rebuilt(settings: TrainingSettings, spec: SampleSpec, device: torch.device) -> nn.Module:
    """The model from other random numbers."""
    other = settings.run.model_copy(update={"seed": settings.run.seed ^ 1})
    return build_run_model(settings.model_copy(update={"run": other}), spec, device, report=lambda _: None)


def _two_samples(bundle: DataBundle, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and targets to try a model with, shape (2, ...): batch norm over features takes no single one."""
    inputs, targets = read_samples(bundle.train, np.arange(2) % len(bundle.train))
    return inputs.to(device), targets.to(device)


def _build_objective(context: RankContext, bundle: DataBundle) -> Objective:
    """The objective, which the dataset must have targets for."""
    objective = build_objective(context.settings.objective, bundle.spec)
    check_metrics(objective)
    check_first_samples(bundle, objective)
    if is_import_path(context.settings.data.dataset):
        check_own_draws(bundle, is_augmented=context.settings.data.augment)
    return objective


def _open_bucket(context: RankContext) -> RunBucket | None:
    location = RemoteLocation.of(context.settings.checkpoint, context.task.run_directory.name)
    return None if location is None or context.place.rank > 0 else RunBucket(location)
