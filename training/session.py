"""A rank's session: it connects, builds what the settings say (`training.rank`), trains, and exports the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import torch

from observability.runlog import Emit, Notice
from training.attention import attention_kernel
from training.callbacks.callback import Callback
from training.callbacks.epoch_gate import EpochGate
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.memory import RankMemory
from training.data import cache
from training.data import registry as datasets
from training.data.loaders import RankLoaders
from training.data.types import DataBundle
from training.deadlines import Deadlines
from training.errors import NonFiniteLossError
from training.exhausted_memory import explained_in_training, limit_memory
from training.export import export_model, keep_files
from training.flight_recorder import FlightRecorder
from training.launch.task import Outcome, RankPlace, RankTask
from training.loop import Loop
from training.objectives.registry import targets_of
from training.process_group import process_group
from training.rank.callbacks import build_callbacks
from training.rank.components import Components, build_components
from training.rank.context import RankContext
from training.rank.loop import build_loop
from training.rank_check import check_rank
from training.recovery.causes import is_communication_error
from training.rundir import DATA_FOLDER
from training.seeding import configure_threads, seed_everything

_NO_GPU = "the GPUs of this sandbox do not exist: training on the CPU, with Gloo"


class Session:
    """One rank of one attempt."""

    def __init__(
        self,
        task: RankTask,
        place: RankPlace,
        *,
        emit: Emit,
        wants_stop: Callable[[], bool],
        callbacks: Sequence[Callback] = (),
        gate: EpochGate | None = None,
        memory: RankMemory | None = None,
    ) -> None:
        """Prepare the rank.

        Args:
            task: the attempt.
            place: the rank.
            emit: accepts events; those of ranks other than 0 are dropped.
            wants_stop: this rank's vote to save and stop.
            callbacks: called in addition to the built-in ones; the same on every rank.
            gate: holds the run between two epochs; every rank has one, or none.
            memory: keeps the state for the next attempt if this rank only loses its peers, on a CPU; every rank has one, or none.

        Raises:
            ValueError: the gate would decide before the evaluation that it decides by.
        """
        if gate is not None and task.settings.loop.validation == "async":
            raise ValueError("a gate decides by the evaluation of the epoch before: loop.validation must be inline")
        self._context = RankContext.of(task, place, emit=emit)
        self._wants_stop = wants_stop
        self._callbacks = callbacks
        self._gate = gate
        # The process of a rank on a GPU does not outlive an attempt that fails (`training.launch.agent.resident`).
        self._memory = None if self._context.device.type == "cuda" else memory
        self._recorder = FlightRecorder(task.run_directory, attempt=task.attempt, rank=place.rank)

    def run(self) -> Outcome:
        """Join the process group, train, and leave a committed checkpoint and, if the run is done, its weights.

        Raises:
            PlatformError: data, checkpoint or settings are refused, or training failed with a known remedy.
        """
        context, settings = self._context, self._context.settings
        context.phase("connect")
        prepare = None if settings.data.cache is None else self._fill_cache
        code = context.task.code.identity.sha256 if context.task.code else ""
        timeout = settings.scale.collective_timeout
        gpu = context.device.type == "cuda"
        if settings.scale.gpu and not gpu:
            context.emit(Notice(level="warning", message=_NO_GPU))
        self._recorder.prepare()
        check_rank(context.device, memory_fraction=settings.compute.memory_fraction, connects=context.place.world > 1)
        with (
            process_group(context.place, gpu=gpu, timeout_seconds=timeout, code=code, prepare=prepare),
            self._recorder.dumped_on_failure(),
        ):
            return self._train()

    def _train(self) -> Outcome:
        context, settings = self._context, self._context.settings
        self._configure_process()
        context.phase("data")
        bundle = datasets.load_dataset(cache.cached(settings.data), targets=targets_of(settings.objective))
        if context.place.rank == 0:
            keep_files(bundle.files, context.task.run_directory / DATA_FOLDER)
            for note in bundle.notes:
                context.report(note)
        context.phase("model")
        components = build_components(context, bundle)
        loop = self._build_loop(components)
        with ExitStack() as stack:
            for close in loop.hooks.close:
                stack.callback(close, loop)
            stack.enter_context(attention_kernel(settings.compute.attention))
            with (
                explained_in_training(settings, step=lambda: loop.progress.step + 1),
                self._kept_without_peers(components, loop),
            ):
                loop.run()
            if not loop.is_done:
                return Outcome(status="stopped", step=loop.progress.step)
            _check_applied(loop.progress)
            digest = self._export(components, bundle)
        return Outcome(status="done", step=loop.progress.step, weights_sha256=digest)

    def _configure_process(self) -> None:
        """Set threads, seeds and the device of this process."""
        settings, device = self._context.settings, self._context.device
        configure_threads(settings.scale.cpus_per_worker)
        seed_everything(settings.run.seed, deterministic=settings.run.deterministic)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            limit_memory(settings.compute, device)

    def _build_loop(self, components: Components) -> Loop:
        context = self._context
        code = context.task.code
        place = context.place
        deadlines = Deadlines(
            context.settings,
            context.task.run_directory,
            attempt=context.task.attempt,
            rank=place.rank,
            dump_collectives=self._recorder.dump if place.world > 1 else lambda: None,
        )
        folder = code.folder if code else None
        check = partial(components.objective.check_targets, spec=components.bundle.spec)
        loaders = RankLoaders(
            context.settings, context.share, context.device, code=folder, waiting=deadlines, check=check
        )
        callbacks = build_callbacks(context, components, loaders, deadlines, added=self._callbacks, gate=self._gate)
        return build_loop(context, components, loaders, callbacks, memory=self._memory, wants_stop=self._wants_stop)

    def _export(self, components: Components, bundle: DataBundle) -> str:
        """Write the run's weights; the sha256 of their file on rank 0, empty on the others."""
        context, average = self._context, components.average
        with nullcontext() if average is None else average.in_model():
            trained = components.strategy.whole_module()
            if context.place.rank > 0:
                return ""
            folder = context.task.run_directory / "model"
            return export_model(trained, folder, context.settings.model, bundle.spec, files=bundle.files)

    @contextmanager
    def _kept_without_peers(self, components: Components, loop: Loop) -> Iterator[None]:
        """Keep the state after the last step if a collective fails in the block, and if this rank has all of it."""
        try:
            yield
        except Exception as error:
            if self._memory is not None and is_communication_error(error) and components.strategy.has_whole_state:
                self._memory.keep(loop.progress, components.states, components.identity)
            raise

    def _fill_cache(self) -> None:
        context = self._context
        context.phase("cache")
        cache.fill(context.settings.data, is_restart=context.task.attempt > 0, report=context.report)


def _check_applied(progress: TrainProgress) -> None:
    """Refuse to call weights trained that most steps have left as they were.

    Raises:
        NonFiniteLossError: more than half of the steps were skipped.
    """
    if 2 * progress.skipped > progress.step:
        raise NonFiniteLossError(
            f"{progress.skipped} of {progress.step} steps were skipped, because their gradients were not finite: the model has not learned",
            remedy="loop.nonfinite=stop names the first such step; look for NaN in its samples (loop.log_sample_ids=true), or lower "
            "optimizer.learning_rate",
        )
