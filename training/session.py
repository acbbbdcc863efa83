"""A rank's session: everything it builds from the settings, in order, and the loop over it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import numpy as np
import torch

from observability.runlog import Emit, Notice, Phase
from training.attention import attention_kernel
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
from training.checkpoint.memory import RankMemory
from training.checkpoint.ranks import writing_ranks
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.restore import restore_newest
from training.checkpoint.retention import Retention
from training.checkpoint.stateful import Stateful, StateRegistry
from training.checkpoint.store import FOLDER, CheckpointStore, local_store
from training.compute import compile_steps
from training.data import cache
from training.data import registry as datasets
from training.data.loader import EvalLoader
from training.data.loaders import RankLoaders
from training.data.order import BatchPlan
from training.data.place import DataPlace
from training.data.types import DataBundle
from training.device import rank_device
from training.evaluate import EvaluationResult, evaluate, evaluated_weights
from training.exhausted_memory import explained_in_evaluation, explained_in_training, limit_memory
from training.export import export_model, keep_files
from training.flight_recorder import FlightRecorder
from training.flops import FlopCount
from training.identity import identity_of
from training.launch.task import Outcome, RankPlace, RankTask
from training.loop import Loop, planned_steps
from training.objectives.objective import Objective
from training.objectives.registry import build_objective, ranking_metric
from training.optim import build_optimizer, learning_rate_at, peak_learning_rate
from training.peak_flops import device_peak_flops
from training.precision import Precision
from training.process_group import process_group
from training.rank_check import check_rank
from training.recomputation import recompute_blocks
from training.recovery.causes import is_communication_error
from training.run_model import build_run_model
from training.rundir import RunDirectory
from training.seeding import configure_threads, seed_everything
from training.step import StepRunner
from training.step_reducer import StepReducer
from training.strategies.build import build_strategy, states_of, sum_over_ranks
from training.strategies.strategy import Strategy
from training.validation.validator import Validator
from training.weight_average import WeightAverage

logger = logging.getLogger(__name__)

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
            memory: keeps the state for the next attempt if this rank only loses its peers; every rank has one, or none.
        """
        if gate is not None and task.settings.loop.validation == "async":
            raise ValueError("a gate decides by the evaluation of the epoch before: loop.validation must be inline")
        self._task = task
        self._settings = task.settings
        self._place = place
        self._emit = emit
        self._wants_stop = wants_stop
        self._callbacks = callbacks
        self._gate = gate
        self._memory = memory
        self._device = rank_device(task.settings.scale, index=place.gpu_index)
        self._recorder = FlightRecorder(task.run_directory, attempt=task.attempt, rank=place.rank)
        self._share = DataPlace.of(
            rank=place.rank,
            world=place.world,
            ranks_per_share=task.settings.strategy.ranks_per_share if place.world > 1 else 1,
        )
        self._loaders = RankLoaders(
            task.settings, self._share, self._device, code=task.code.folder if task.code else None
        )

    def run(self) -> Outcome:
        """Join the process group, train, and leave a committed checkpoint and, if the run is done, its weights.

        Raises:
            PlatformError: data, checkpoint or settings are refused, or training failed with a known remedy.
        """
        scale = self._settings.scale
        self._phase("connect")
        prepare = None if self._settings.data.cache is None else self._fill_cache
        code = self._task.code.identity.sha256 if self._task.code else ""
        timeout = scale.collective_timeout
        gpu = self._device.type == "cuda"
        if scale.gpu and not gpu:
            self._emit(Notice(level="warning", message=_NO_GPU))
        recorded = self._recorder
        recorded.prepare()
        check_rank(self._device, memory_fraction=self._settings.compute.memory_fraction, connects=self._place.world > 1)
        with (
            process_group(self._place, gpu=gpu, timeout_seconds=timeout, code=code, prepare=prepare),
            recorded.dumped_on_failure(),
        ):
            return self._train()

    def _train(self) -> Outcome:
        settings, place = self._settings, self._place
        configure_threads(settings.scale.cpus_per_worker)
        seed_everything(settings.run.seed, deterministic=settings.run.deterministic)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            limit_memory(settings.compute, self._device)
        self._phase("data")
        bundle = datasets.load_dataset(cache.cached(settings.data))
        if place.rank == 0:
            keep_files(bundle.files, self._task.run_directory / "data")
        self._phase("model")
        strategy = self._build_strategy(bundle)
        average = self._build_average(strategy)
        loop = self._build_loop(bundle, strategy, average)
        with ExitStack() as stack:
            for close in loop.hooks.close:
                stack.callback(close, loop)
            stack.enter_context(attention_kernel(settings.compute.attention))
            with (
                explained_in_training(settings, step=lambda: loop.progress.step + 1),
                self._kept_without_peers(strategy, loop),
            ):
                loop.run()
            if not loop.is_done:
                return Outcome(status="stopped", step=loop.progress.step)
            digest = ""
            with nullcontext() if average is None else average.in_model():
                trained = strategy.whole_module()
                if place.rank == 0:
                    folder = self._task.run_directory / "model"
                    digest = export_model(trained, folder, settings.model, bundle.spec, files=bundle.files)
        return Outcome(status="done", step=loop.progress.step, weights_sha256=digest)

    @contextmanager
    def _kept_without_peers(self, strategy: Strategy, loop: Loop) -> Iterator[None]:
        """Keep the state after the last step if a collective fails in the block, and if this rank has all of it."""
        try:
            yield
        except Exception as error:
            if self._memory is not None and is_communication_error(error) and strategy.has_whole_state:
                self._memory.keep(loop.progress, self._states, self._identity)
            raise

    def _build_loop(self, bundle: DataBundle, strategy: Strategy, average: WeightAverage | None) -> Loop:
        """Build the callbacks, restore all state, and make the loop over it."""
        settings, place = self._settings, self._place
        plan = BatchPlan(
            size=len(bundle.train),
            global_batch=settings.loop.global_batch,
            world=self._share.world,
            accumulation=settings.micro_batches,
        )
        precision = Precision(settings.precision, self._device)
        objective = self._build_objective(bundle)
        ranked_by = ranking_metric(objective, settings.checkpoint, name=settings.objective.name)
        flops = FlopCount() if place.rank == 0 and settings.metrics.flops else None
        store = local_store(self._task.run_directory / FOLDER)
        bucket = self._bucket()
        identity = self._identity = identity_of(settings, bundle, world=place.world, code=self._task.code)
        late = LateValidations(store, ranked_by=ranked_by.name)
        states = self._states = StateRegistry(**states_of(strategy, self._report), precision=precision)
        score = partial(
            explained_in_evaluation(settings)(evaluate),
            strategy,
            objective=objective,
            precision=precision,
            device=self._device,
            world=place.world,
            average=average,
        )
        profiling = self._profiling()
        callbacks = [
            LastStep(self._task.run_directory, attempt=self._task.attempt, rank=place.rank),
            *StepDeadline.of(self._task, place, self._recorder),
            EventLog(self._emit, objective=objective, ranked_by=ranked_by, bundle=bundle, world=place.world),
            Usage(self._emit, flops=flops, device=self._device, peak=self._peak_flops()),
            profiling,
            *self._attention_report(profiling),
            *self._ledger(),
            *([] if average is None else [Averaging(average)]),
            *self._callbacks,
            self._evaluation(bundle, score, late, prepared=partial(evaluated_weights, strategy, average)),
            *self._remote_checkpoints(bucket, store, higher_is_better=ranked_by.higher_is_better),
            Checkpointing(
                store,
                states,
                identity=identity,
                settings=settings.checkpoint,
                ranked_by=ranked_by,
                late=late,
                ranks=partial(writing_ranks, shards_state=strategy.shards_state, rank=place.rank, device=self._device),
            ),
            *self._gate_keeper(),
        ]
        for callback in callbacks:
            if isinstance(callback, Stateful):
                states.register(callback.name, callback)
        return Loop(
            settings=settings.loop,
            plan=plan,
            train=self._loaders.training(objective.training_split(bundle.train), plan),
            runner=self._step_runner(strategy, objective, precision, flops),
            reducer=StepReducer(
                rank=place.rank, world=place.world, device=self._device, sum_over_ranks=sum_over_ranks(settings)
            ),
            learning_rate=self._learning_rate(plan),
            callbacks=callbacks,
            progress=restore_newest(
                store,
                None if bucket is None else RemoteTier(bucket),
                states,
                identity,
                place=place,
                device=self._device,
                shards_state=strategy.shards_state,
                refuse_lost=RunDirectory(self._task.run_directory).refuse_lost_checkpoints,
                emit=self._emit,
                memory=self._memory,
            ),
            wants_stop=self._wants_stop,
        )

    def _learning_rate(self, plan: BatchPlan) -> Callable[[int], float]:
        """The learning rate after a number of steps."""
        settings = self._settings
        return partial(
            learning_rate_at,
            settings=settings.schedule,
            peak=peak_learning_rate(settings.optimizer, settings.loop.global_batch),
            total_steps=planned_steps(settings.loop, plan),
            steps_per_epoch=plan.steps_per_epoch,
        )

    def _step_runner(
        self, strategy: Strategy, objective: Objective, precision: Precision, flops: FlopCount | None
    ) -> StepRunner:
        settings, place = self._settings, self._place
        return StepRunner(
            strategy=strategy,
            objective=objective,
            precision=precision,
            device=self._device,
            clip_norm=settings.loop.clip_norm,
            seed=settings.run.seed,
            rank=place.rank,
            world=place.world,
            keeps_buffers=settings.may_skip_steps or self._memory is not None,
            sum_over_ranks=sum_over_ranks(settings),
            flops=flops,
            is_compiled=settings.compute.compile != "off",
        )

    def _peak_flops(self) -> float:
        """FLOP/s that the devices of all ranks can reach; 0 if it is unknown."""
        settings = self._settings
        peak = settings.metrics.peak_flops or device_peak_flops(self._device, settings.precision)
        return (peak or 0.0) * self._place.world

    def _build_objective(self, bundle: DataBundle) -> Objective:
        """The objective, which the dataset must have targets for."""
        objective = build_objective(self._settings.objective, bundle.spec)
        _, targets = bundle.train.read(np.zeros(1, dtype=np.int64))
        objective.check_targets(targets, bundle.spec)
        return objective

    def _build_strategy(self, bundle: DataBundle) -> Strategy:
        module = build_run_model(self._settings, bundle.spec, self._device, report=self._report)
        if (mode := self._settings.compute.activation_checkpointing) != "off":
            recompute_blocks(module, mode, model=self._settings.model.name)
        peak_rate = peak_learning_rate(self._settings.optimizer, self._settings.loop.global_batch)
        make_optimizer = partial(build_optimizer, settings=self._settings.optimizer, learning_rate=peak_rate)
        strategy = build_strategy(
            module,
            make_optimizer,
            settings=self._settings,
            place=self._place,
            device=self._device,
            report=self._report,
        )
        if strategy.note:
            self._report(strategy.note)
        compile_steps(strategy, self._settings.compute, run_directory=self._task.run_directory)
        return strategy

    def _build_average(self, strategy: Strategy) -> WeightAverage | None:
        decay = self._settings.ema.decay
        return None if decay is None else WeightAverage(strategy.module, decay=decay)

    def _gate_keeper(self) -> list[GateKeeper]:
        if self._gate is None:
            return []
        return [GateKeeper(self._gate, rank=self._place.rank, world=self._place.world, device=self._device)]

    def _bucket(self) -> RunBucket | None:
        """The run's bucket, on rank 0 and if it has one."""
        location = RemoteLocation.of(self._settings.checkpoint, self._task.run_directory.name)
        return None if location is None or self._place.rank > 0 else RunBucket(location)

    def _remote_checkpoints(
        self, bucket: RunBucket | None, store: CheckpointStore, *, higher_is_better: bool
    ) -> list[RemoteCheckpoints]:
        if bucket is None:
            return []
        settings = self._settings.checkpoint
        return [
            RemoteCheckpoints(
                bucket,
                store,
                run_directory=self._task.run_directory,
                retention=Retention.of(settings, higher_is_better=higher_is_better),
                patience=settings.remote_patience,
                emit=self._emit,
            )
        ]

    def _profiling(self) -> Profiling:
        return Profiling(
            self._settings.profile,
            self._task.run_directory,
            emit=self._emit,
            place=self._place,
            device=self._device,
        )

    def _attention_report(self, profiling: Profiling) -> list[AttentionReport]:
        wanted = self._settings.compute.attention
        if wanted == "auto" or self._place.rank > 0:
            return []
        return [AttentionReport(self._emit, wanted=wanted, profiling=profiling)]

    def _ledger(self) -> list[SampleLedger]:
        if not self._settings.loop.log_sample_ids or not self._share.is_recorder:
            return []
        share = self._share
        return [SampleLedger(self._task.run_directory, rank=share.rank, world=share.world, attempt=self._task.attempt)]

    def _evaluation(
        self,
        bundle: DataBundle,
        score: Callable[[EvalLoader], EvaluationResult],
        late: LateValidations,
        *,
        prepared: Callable[[], AbstractContextManager[None]],
    ) -> Evaluation | AsyncEvaluation:
        loop, place = self._settings.loop, self._place
        inline = Evaluation(
            score,
            validation=self._loaders.evaluation(bundle.validation),
            test=self._loaders.evaluation(bundle.test),
            every_epochs=loop.evaluate_every,
        )
        if loop.validation == "inline":
            return inline
        on_gpu = loop.validation_device == "gpu" and self._device.type == "cuda"
        gpu = place.gpu_index if on_gpu else None
        return AsyncEvaluation(
            inline,
            Validator(self._task, gpu=gpu, emit=self._emit) if place.rank == 0 else None,
            late,
            prepared=prepared,
            emit=self._emit,
            patience=loop.validation_wait,
            world=place.world,
            device=self._device,
        )

    def _fill_cache(self) -> None:
        self._phase("cache")
        cache.fill(self._settings.data, is_restart=self._task.attempt > 0, report=self._report)

    def _report(self, line: str) -> None:
        logger.info("%s", line)
        self._emit(Notice(level="warning" if line.startswith("warning: ") else "info", message=line))

    def _phase(self, name: str) -> None:
        self._emit(Phase(name=name, process="rank 0"))
