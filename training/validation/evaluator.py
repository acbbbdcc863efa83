"""The evaluator: reads steps from rank 0, evaluates their checkpoints on the validation split, and answers with the metrics.

It is what evaluates between epochs when it does so next to the training: the same code of the user's own, the same dataset, model,
objective, number format and batches, by one process. An evaluation by the ranks gives the same bits (`training.evaluate`), on the same
kind of device.
"""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import replace
from functools import partial

import torch

from training.attention import attention_kernel
from training.callbacks.averaging import Averaging
from training.checkpoint.state import ChangedBuffers, ModelState
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import FOLDER, VerifiedCheckpoint, local_store
from training.code.import_path import use_code
from training.data import cache
from training.data import registry as datasets
from training.data.loaders import RankLoaders
from training.data.place import DataPlace
from training.errors import PlatformError
from training.evaluate import EvaluationResult, evaluate
from training.exhausted_memory import explained_in_evaluation
from training.identity import identity_of
from training.launch.task import RankTask
from training.objectives.registry import build_objective, targets_of
from training.precision import Precision
from training.run_model import build_run_model
from training.seeding import configure_threads, seed_everything
from training.strategies.single_process import SingleProcess
from training.validation.messages import Answer
from training.weight_average import WeightAverage

logger = logging.getLogger(__name__)


class Evaluator:
    """The validation of a run's checkpoints in this process."""

    def __init__(self, task: RankTask, device: torch.device) -> None:
        """Read the dataset and build the model.

        Raises:
            PlatformError: data or settings are refused.
        """
        settings = task.settings
        configure_threads(settings.scale.cpus_per_worker)
        seed_everything(settings.run.seed, deterministic=settings.run.deterministic)
        bundle = datasets.load_dataset(cache.cached(settings.data), targets=targets_of(settings.objective))
        module = build_run_model(settings, bundle.spec, device, report=logger.info)
        average = None if settings.ema.decay is None else WeightAverage(module, decay=settings.ema.decay)
        self._states = StateRegistry(model=ModelState(module), buffers=ChangedBuffers(module))
        self._names = {"model", "buffers"}
        if average is not None:
            self._states.register(Averaging.name, Averaging(average))
            self._names.add(Averaging.name)
        self._store = local_store(task.run_directory / FOLDER)
        self._identity = identity_of(settings, bundle, world=settings.scale.workers, code=task.code)
        share = DataPlace.of(rank=0, world=1, ranks_per_share=1)
        loaders = RankLoaders(settings, share, device, code=task.code.folder if task.code else None)
        self._attention = settings.compute.attention
        self._score = partial(
            explained_in_evaluation(settings)(evaluate),
            # Nothing is trained; a strategy has an optimizer.
            SingleProcess(module, lambda module: torch.optim.SGD(module.parameters(), lr=0.0)),
            loaders.evaluation(bundle.validation),
            objective=build_objective(settings.objective, bundle.spec),
            precision=Precision(settings.precision, device),
            device=device,
            world=1,
            average=average,
        )

    def evaluate(self, step: int) -> EvaluationResult:
        """Verify and read the checkpoint of a step, and evaluate it.

        Raises:
            PlatformError: it is not good, or does not fit, or memory ran out.
        """
        checkpoint = self._store.open(step, self._identity)
        self._states.restore(_only(checkpoint, self._names))
        with attention_kernel(self._attention):
            return self._score()


def serve(connection: socket.socket) -> None:
    """Evaluate every step that rank 0 names, until it closes the connection.

    Raises:
        Exception: the evaluator cannot go on; rank 0 reads the log's last line.
    """
    lines = connection.makefile("rb")
    given = json.loads(next(lines))
    task = RankTask.load(given["task"])
    if task.code is not None:
        use_code(task.code.folder)
    device = torch.device("cpu") if given["gpu"] is None else torch.device("cuda", given["gpu"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    evaluator = Evaluator(task, device)
    for line in lines:
        connection.sendall(_answer(evaluator, json.loads(line)["step"]).encode())


def _answer(evaluator: Evaluator, step: int) -> Answer:
    try:
        result = evaluator.evaluate(step)
    except PlatformError as error:
        logger.exception("step %d", step)
        return Answer(step=step, problem=str(error.args[0]))
    return Answer(step=step, metrics=result.metrics, samples=result.samples, seconds=result.seconds)


def _only(checkpoint: VerifiedCheckpoint, names: set[str]) -> VerifiedCheckpoint:
    """The checkpoint without the states of other names, such as the optimizer's."""
    tensors = checkpoint.manifest.tensor_files
    files = tuple(file for name in names & tensors.keys() for file in tensors[name])
    extra = {name: value for name, value in checkpoint.state.extra.items() if name in names}
    return replace(
        checkpoint,
        manifest=replace(checkpoint.manifest, files=files),
        state=replace(checkpoint.state, optimizer="", precision={}, extra=extra),
    )
