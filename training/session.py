"""A rank's session: everything it builds from the settings, in order, and the loop over it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from observability.runlog import Emit, Notice, Phase, Restored, TrainingStarted
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.state import load_into
from training.checkpoint.store import FOLDER, CheckpointStore, local_store
from training.checkpoint.store import Restored as RestoredCheckpoint
from training.data import registry as datasets
from training.data.loader import EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.types import DataBundle
from training.environment import platform_version
from training.export import save_safetensors, weights_sha256
from training.launch.task import Outcome, RankPlace, RankTask
from training.ledger import LedgerWriter
from training.loop import Loop, LoopParts, planned_steps
from training.models import registry as models
from training.optim import build_optimizer, peak_learning_rate
from training.precision import Precision
from training.pulse import Pulse
from training.saving import Saver
from training.seeding import configure_threads, seed_everything
from training.step import StepRunner

EVALUATION_BATCH = 512
"""Samples of an evaluation's batch: large enough to be quick, small enough for the memory that training needs anyway."""


@dataclass(frozen=True, kw_only=True)
class _Built:
    """What a rank has built before it trains."""

    device: torch.device
    bundle: DataBundle
    plan: BatchPlan
    module: nn.Module
    optimizer: torch.optim.Optimizer
    precision: Precision


class Session:
    """One rank of one attempt, its peers met already."""

    def __init__(self, task: RankTask, place: RankPlace, *, emit: Emit, wants_stop: Callable[[], bool]) -> None:
        self._task = task
        self._settings = task.settings
        self._place = place
        self._emit = emit
        self._wants_stop = wants_stop

    def run(self) -> Outcome:
        """Build, restore, train, evaluate on the test split, and leave weights and a committed checkpoint.

        Raises:
            PlatformError: data, checkpoint or settings do not allow the run, or it failed in a way that has a remedy.
        """
        built = self._build()
        store = local_store(self._task.run_directory / FOLDER)
        identity = self._identity(built.bundle)
        restored = self._restore(store, identity, built)
        with ExitStack() as stack:
            saver = self._open_saver(
                stack, store, identity, built, start_step=restored.progress.step if restored else 0
            )
            loop = self._make_loop(stack, built, restored, saver)
            self._announce(built, loop)
            is_done = loop.run()
            self._phase("finish")
            if saver is not None:
                saver.save(loop, None, final=True)
            if not is_done:
                return Outcome(status="stopped", step=loop.progress.step)
            loop.evaluate("test", self._evaluation(built, "test"))
            digest = self._export(built) if self._place.rank == 0 else ""
        return Outcome(status="done", step=loop.progress.step, weights_sha256=digest)

    def _build(self) -> _Built:
        settings, place = self._settings, self._place
        configure_threads(settings.scale.cpus_per_worker)
        seed_everything(settings.run.seed, deterministic=settings.run.deterministic)
        device = torch.device("cuda", place.local_rank) if settings.scale.gpu else torch.device("cpu")
        if settings.scale.gpu:
            torch.cuda.set_device(device)
        self._phase("data")
        bundle = datasets.load_dataset(settings.data)
        self._phase("model")
        # A dataset of the user's own may have drawn from the global generators; the weights must not depend on that.
        torch.manual_seed(settings.run.seed)
        module = models.build_model(settings.model, bundle.spec).to(device)
        plan = BatchPlan(
            size=len(bundle.train),
            global_batch=settings.loop.global_batch,
            world=place.world,
            accumulation=settings.loop.accumulation,
        )
        return _Built(
            device=device,
            bundle=bundle,
            plan=plan,
            module=module,
            optimizer=build_optimizer(module, settings.optimizer, global_batch=settings.loop.global_batch),
            precision=Precision(settings.precision, device),
        )

    def _identity(self, bundle: DataBundle) -> Identity:
        settings = self._settings.model_dump(mode="json")
        return Identity(
            model=self._settings.model.name,
            dataset_fingerprint=bundle.fingerprint,
            global_batch=self._settings.loop.global_batch,
            seed=self._settings.run.seed,
            world=self._place.world,
            settings_sha256=hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
            platform_version=platform_version(),
        )

    def _restore(self, store: CheckpointStore, identity: Identity, built: _Built) -> RestoredCheckpoint | None:
        """Put the newest good checkpoint into model and optimizer. Rank 0 chooses; its peers open the same."""
        restored = store.newest_good(identity) if self._place.rank == 0 else None
        if self._place.world > 1:
            chosen = torch.tensor([restored.progress.step if restored else -1], device=built.device)
            dist.broadcast(chosen, src=0)
            if self._place.rank > 0 and int(chosen) >= 0:
                restored = store.open(int(chosen), identity)
        if restored is None:
            return None
        load_into(restored, model=built.module, optimizer=built.optimizer, precision=built.precision)
        self._emit(Restored(step=restored.progress.step, path=str(restored.path), skipped=list(restored.skipped)))
        for note in restored.notes:
            self._emit(Notice(level="info", message=f"resumed with a difference: {note}"))
        return restored

    def _open_saver(
        self, stack: ExitStack, store: CheckpointStore, identity: Identity, built: _Built, *, start_step: int
    ) -> Saver | None:
        if self._place.rank > 0:
            return None
        saver = Saver(
            store,
            identity=identity,
            settings=self._settings.checkpoint,
            start_step=start_step,
            model=built.module,
            optimizer=built.optimizer,
            precision=built.precision,
            emit=self._emit,
        )
        stack.callback(saver.close)
        return saver

    def _make_loop(
        self, stack: ExitStack, built: _Built, restored: RestoredCheckpoint | None, saver: Saver | None
    ) -> Loop:
        settings, place = self._settings, self._place
        model = built.module
        if place.world > 1:
            model = DistributedDataParallel(
                built.module,
                device_ids=[place.local_rank] if settings.scale.gpu else None,
                gradient_as_bucket_view=True,
            )
        runner = StepRunner(
            model=model,
            optimizer=built.optimizer,
            precision=built.precision,
            device=built.device,
            clip_norm=settings.loop.clip_norm,
            seed=settings.run.seed,
            rank=place.rank,
            world=place.world,
            keeps_buffers=settings.loop.nonfinite == "skip" or built.precision.scales_gradients,
        )
        ledger = None
        if settings.loop.log_sample_ids:
            ledger = stack.enter_context(
                LedgerWriter(self._task.run_directory, rank=place.rank, attempt=self._task.attempt)
            )
        parts = LoopParts(
            settings=settings,
            runner=runner,
            module=built.module,
            optimizer=built.optimizer,
            precision=built.precision,
            pulse=Pulse(rank=place.rank, world=place.world, device=built.device),
            plan=built.plan,
            train=TrainLoader(
                built.bundle,
                plan=built.plan,
                seed=settings.run.seed,
                rank=place.rank,
                loader_workers=settings.data.loader_workers,
                prefetch=settings.data.prefetch,
                augment=settings.data.augment,
            ),
            validation=self._evaluation(built, "validation"),
            device=built.device,
            peak_rate=peak_learning_rate(settings.optimizer, settings.loop.global_batch),
            save=saver.save if saver is not None else _save_nothing,
            reserve=saver.reserve if saver is not None else _reserve_nothing,
            emit=self._emit,
            wants_stop=self._wants_stop,
            ledger=ledger,
        )
        start = TrainProgress(step=0, epoch=1, step_in_epoch=0, samples=0)
        return Loop(
            parts=parts,
            progress=restored.progress if restored else start,
            best_metrics=list(restored.extra["best_metrics"]) if restored else [],
        )

    def _evaluation(self, built: _Built, split: str) -> EvalLoader:
        return EvalLoader(
            getattr(built.bundle, split),
            batch=EVALUATION_BATCH,
            rank=self._place.rank,
            world=self._place.world,
            loader_workers=self._settings.data.loader_workers,
            prefetch=self._settings.data.prefetch,
        )

    def _announce(self, built: _Built, loop: Loop) -> None:
        self._emit(
            TrainingStarted(
                world=self._place.world,
                start_step=loop.progress.step,
                total_steps=planned_steps(self._settings, built.plan),
                steps_per_epoch=built.plan.steps_per_epoch,
                parameters=sum(p.numel() for p in built.module.parameters()),
                train_samples=len(built.bundle.train),
                dataset_fingerprint=built.bundle.fingerprint,
            )
        )

    def _export(self, built: _Built) -> str:
        """Write the final weights and what is needed to build the model around them; returns their hash."""
        folder = self._task.run_directory / "model"
        folder.mkdir(exist_ok=True)
        digest = weights_sha256(built.module)
        save_safetensors(built.module, folder / "model.safetensors", {"sha256": digest})
        description = {
            "model": self._settings.model.model_dump(mode="json"),
            "shape": list(built.bundle.spec.shape),
            "classes": built.bundle.spec.classes,
            "weights_sha256": digest,
        }
        (folder / "model.json").write_text(json.dumps(description, indent=2), encoding="utf-8")
        return digest

    def _phase(self, name: str) -> None:
        self._emit(Phase(name=name, process="rank 0"))


def _save_nothing(loop: Loop, metric: float | None) -> float:
    del loop, metric
    return 0.0


def _reserve_nothing() -> None:
    """The ranks that save nothing need no memory for it."""
