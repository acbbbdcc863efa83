"""The loop of a rank: its state restored, its steps and their numbers as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from training.callbacks.callback import Callback
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.memory import RankMemory
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.restore import restore_newest
from training.checkpoint.stateful import Stateful
from training.data.listing import LISTING_FILE, FileListing
from training.data.loaders import RankLoaders
from training.data.types import DataBundle
from training.errors import ResumeMismatchError
from training.export import keep_files
from training.loop import Loop, planned_steps
from training.optim import learning_rate_at, peak_learning_rate
from training.rank.components import Components
from training.rank.context import RankContext
from training.rundir import DATA_FOLDER, RunDirectory
from training.step import StepRunner
from training.step_reducer import StepReducer
from training.strategies.build import sum_over_ranks

_JUMP = 1.5
"""Smallest ratio of two learning rates that is worth a line."""


def build_loop(
    context: RankContext,
    components: Components,
    loaders: RankLoaders,
    callbacks: Sequence[Callback],
    *,
    memory: RankMemory | None,
    wants_stop: Callable[[], bool],
) -> Loop:
    """Register the callbacks' states, restore everything, and make the loop that continues from there.

    Args:
        context: the rank.
        components: what is trained and saved.
        loaders: of the training split.
        callbacks: in the order in which they are called.
        memory: may have the state of the attempt before; None without.
        wants_stop: this rank's vote to save and stop.

    Raises:
        PlatformError: the run cannot continue from its checkpoints.
    """
    settings, place = context.settings, context.place
    for callback in callbacks:
        if isinstance(callback, Stateful):
            components.states.register(callback.name, callback)
    learning_rate = _learning_rate(context, components)
    progress = _restore(context, components, memory)
    if 0 < progress.step < planned_steps(settings.loop, components.plan):
        _report_jump(context, progress, learning_rate)
    split = components.objective.training_split(components.bundle.train)
    return Loop(
        settings=settings.loop,
        plan=components.plan,
        train=loaders.training(split, components.plan, has_own_targets=split is components.bundle.train),
        runner=_step_runner(context, components, is_kept_in_memory=memory is not None),
        reducer=StepReducer(
            rank=place.rank, world=place.world, device=context.device, sum_over_ranks=sum_over_ranks(settings)
        ),
        learning_rate=learning_rate,
        callbacks=callbacks,
        progress=progress,
        wants_stop=wants_stop,
    )


def _restore(context: RankContext, components: Components, memory: RankMemory | None) -> TrainProgress:
    """Restore the newest good checkpoint, if there is one; if it is of another dataset, the refusal says what differs.

    What the dataset was read from is kept with the run.
    """
    run, bundle = context.task.run_directory, components.bundle
    try:
        progress = restore_newest(
            components.store,
            None if components.bucket is None else RemoteTier(components.bucket),
            components.states,
            components.identity,
            place=context.place,
            device=context.device,
            shards_state=components.strategy.shards_state,
            refuse_lost=RunDirectory(run).refuse_lost_checkpoints,
            emit=context.emit,
            memory=memory,
        )
    except ResumeMismatchError as error:
        raise _with_changes(error, bundle, run / DATA_FOLDER) from error
    if context.place.rank == 0 and bundle.listing is not None and not (run / DATA_FOLDER / LISTING_FILE).exists():
        keep_files({LISTING_FILE: bundle.listing.encode()}, run / DATA_FOLDER)
    return progress


def _with_changes(error: ResumeMismatchError, bundle: DataBundle, folder: Path) -> ResumeMismatchError:
    """The refusal, with the setting that reads the dataset as the run did, or the files that differ from those kept in a folder."""
    message, before = str(error.args[0]), FileListing.load(folder)
    if setting := bundle.earlier.get(error.dataset_fingerprint):
        return ResumeMismatchError(message, remedy=f"an earlier release read the same files as {setting} does: set it")
    if error.dataset_fingerprint and before is not None and bundle.listing is not None:
        message += (
            f"\n{before.changes(bundle.listing) or 'no file differs, but data.options or data.validation_fraction'}"
        )
    return ResumeMismatchError(message, remedy=error.remedy)


def _step_runner(context: RankContext, components: Components, *, is_kept_in_memory: bool) -> StepRunner:
    settings, place = context.settings, context.place
    return StepRunner(
        strategy=components.strategy,
        objective=components.objective,
        precision=components.precision,
        device=context.device,
        clip_norm=settings.loop.clip_norm,
        seed=settings.run.seed,
        rank=place.rank,
        world=place.world,
        keeps_buffers=settings.may_skip_steps or is_kept_in_memory,
        sum_over_ranks=sum_over_ranks(settings),
        flops=components.flops,
        is_compiled=settings.compute.compile != "off",
    )


def _report_jump(context: RankContext, progress: TrainProgress, learning_rate: Callable[[int], float]) -> None:
    """Say that the learning rate rises at once, as when a finished cosine gets more epochs and so begins again in its middle."""
    settings, before, after = context.settings, progress.learning_rate, learning_rate(progress.step)
    if learning_rate(progress.step - 1) == before or not 0 < before < after / _JUMP:
        return
    kept = (
        before * settings.optimizer.learning_rate / peak_learning_rate(settings.optimizer, settings.loop.global_batch)
    )
    context.report(
        f"the learning rate goes up from {before:.3g} to {after:.3g} at step {progress.step + 1}: schedule.name={settings.schedule.name} "
        f"is a function of all planned steps; schedule.name=constant with optimizer.learning_rate={kept:.3g} keeps it"
    )


def _learning_rate(context: RankContext, components: Components) -> Callable[[int], float]:
    """The learning rate after a number of steps."""
    settings = context.settings
    return partial(
        learning_rate_at,
        settings=settings.schedule,
        peak=peak_learning_rate(settings.optimizer, settings.loop.global_batch),
        total_steps=planned_steps(settings.loop, components.plan),
        steps_per_epoch=components.plan.steps_per_epoch,
    )
