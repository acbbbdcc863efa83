"""The callbacks of a rank, in the order in which the loop calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from training.callbacks.async_evaluation import AsyncEvaluation
from training.callbacks.attention_report import AttentionReport
from training.callbacks.averaging import Averaging
from training.callbacks.callback import Callback
from training.callbacks.checkpointing import Checkpointing
from training.callbacks.epoch_gate import EpochGate, GateKeeper
from training.callbacks.evaluation import Evaluation
from training.callbacks.event_log import EventLog
from training.callbacks.last_step import LastStep
from training.callbacks.profiling import Profiling
from training.callbacks.remote_checkpoints import RemoteCheckpoints
from training.callbacks.sample_ledger import SampleLedger
from training.callbacks.step_deadline import StepDeadline
from training.callbacks.usage import Usage
from training.checkpoint.late_metrics import LateValidations
from training.checkpoint.ranks import writing_ranks
from training.checkpoint.retention import Retention
from training.data.loaders import RankLoaders
from training.deadlines import Deadlines
from training.evaluate import evaluate, evaluated_weights
from training.exhausted_memory import explained_in_evaluation
from training.peak_flops import device_peak_flops
from training.rank.components import Components
from training.rank.context import RankContext
from training.validation.validator import Validator


def build_callbacks(
    context: RankContext,
    components: Components,
    loaders: RankLoaders,
    deadlines: Deadlines,
    *,
    added: Sequence[Callback],
    gate: EpochGate | None,
) -> list[Callback]:
    """Build the callbacks; `training.callbacks.callback` documents their order.

    Args:
        context: the rank.
        components: what they act on.
        loaders: of the splits that are evaluated.
        deadlines: of the steps, and of the batches that `loaders` wait for.
        added: the caller's own.
        gate: holds the run between two epochs; None without.
    """
    late = LateValidations(components.store, ranked_by=components.ranked_by.name)
    return [
        *_reporting(context, components, deadlines),
        *([] if components.average is None else [Averaging(components.average)]),
        *added,
        _evaluation(context, components, loaders, late),
        *_checkpointing(context, components, late),
        *_gate_keeper(context, gate),
    ]


def _reporting(context: RankContext, components: Components, deadlines: Deadlines) -> Iterator[Callback]:
    """What watches and records the steps."""
    task, place = context.task, context.place
    yield LastStep(task.run_directory, attempt=task.attempt, rank=place.rank)
    yield StepDeadline(deadlines)
    yield EventLog(
        context.emit,
        objective=components.objective,
        ranked_by=components.ranked_by,
        bundle=components.bundle,
        world=place.world,
    )
    yield Usage(context.emit, flops=components.flops, device=context.device, peak=_peak_flops(context))
    profiling = Profiling(
        context.settings.profile, task.run_directory, emit=context.emit, place=place, device=context.device
    )
    yield profiling
    wanted = context.settings.compute.attention
    if wanted != "auto" and place.rank == 0:
        yield AttentionReport(context.emit, wanted=wanted, profiling=profiling)
    share = context.share
    if context.settings.loop.log_sample_ids and share.is_recorder:
        yield SampleLedger(task.run_directory, rank=share.rank, world=share.world, attempt=task.attempt)


def _peak_flops(context: RankContext) -> float:
    """FLOP/s that the devices of all ranks can reach; 0 if it is unknown."""
    settings = context.settings
    peak = settings.metrics.peak_flops or device_peak_flops(context.device, settings.precision)
    return (peak or 0.0) * context.place.world


def _evaluation(
    context: RankContext, components: Components, loaders: RankLoaders, late: LateValidations
) -> Evaluation | AsyncEvaluation:
    settings, place, bundle = context.settings, context.place, components.bundle
    score = partial(
        explained_in_evaluation(settings)(evaluate),
        components.strategy,
        objective=components.objective,
        precision=components.precision,
        device=context.device,
        world=place.world,
        average=components.average,
    )
    inline = Evaluation(
        score,
        validation=loaders.evaluation(bundle.validation),
        test=None if bundle.test is bundle.validation else loaders.evaluation(bundle.test),
        every_epochs=settings.loop.evaluate_every,
    )
    if settings.loop.validation == "inline":
        return inline
    on_gpu = settings.loop.validation_device == "gpu" and context.device.type == "cuda"
    gpu = place.gpu_index if on_gpu else None
    return AsyncEvaluation(
        inline,
        Validator(context.task, gpu=gpu, emit=context.emit) if place.rank == 0 else None,
        late,
        prepared=partial(evaluated_weights, components.strategy, components.average),
        emit=context.emit,
        patience=settings.loop.validation_wait,
        world=place.world,
        device=context.device,
    )


def _checkpointing(context: RankContext, components: Components, late: LateValidations) -> Iterator[Callback]:
    """The upload of checkpoints, where the run has a bucket, and what writes them."""
    settings, ranked_by = context.settings.checkpoint, components.ranked_by
    if components.bucket is not None:
        yield RemoteCheckpoints(
            components.bucket,
            components.store,
            run_directory=context.task.run_directory,
            retention=Retention.of(settings, higher_is_better=ranked_by.higher_is_better),
            patience=settings.remote_patience,
            emit=context.emit,
        )
    yield Checkpointing(
        components.store,
        components.states,
        identity=components.identity,
        settings=settings,
        ranked_by=ranked_by,
        late=late,
        ranks=partial(
            writing_ranks,
            shards_state=components.strategy.shards_state,
            rank=context.place.rank,
            device=context.device,
        ),
    )


def _gate_keeper(context: RankContext, gate: EpochGate | None) -> Iterator[Callback]:
    if gate is not None:
        place = context.place
        yield GateKeeper(gate, rank=place.rank, world=place.world, device=context.device)
