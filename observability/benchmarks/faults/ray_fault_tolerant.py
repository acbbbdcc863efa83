"""The baseline for faults: the loop that Ray Train documents for fault tolerance, of the pinned Ray version.

A checkpoint with model, optimizer and epoch is reported after each epoch, and another one once a preemption is announced
(`ray.train.get_preemption_info`); a restarted loop loads the newest one. Restarts are unlimited, all else is Ray's default.
Usage: `python -m observability.benchmarks.faults.ray_fault_tolerant SETTINGS.json FOLDER`. It writes what happens to
`FOLDER/marks.jsonl`, and the process id of each rank to `FOLDER/rank-N`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from observability.benchmarks.bare_ddp import training_tensors
from observability.benchmarks.faults.marks import MARKS, Mark
from observability.event_log import encode
from training.config.schema import TrainingSettings
from training.data import registry as datasets
from training.models import registry as models

_FILE = "state.pt"


def log(folder: Path, mark: Mark) -> None:
    """Append to the log."""
    with (folder / MARKS).open("a", encoding="ascii") as file:
        file.write(encode(mark) + "\n")


class FailureLog(UserCallback):  # type: ignore[misc]  # Ray has no types
    """Logs when Ray's controller notices a failure."""

    def __init__(self, folder: str) -> None:
        """`folder` has the log."""
        self._folder = Path(folder)

    def after_exception(self, run_context: object, worker_exceptions: object) -> None:  # noqa: ARG002 - Ray's signature
        """A worker has failed."""
        log(self._folder, Mark(what="failure"))


def train_loop(config: dict[str, Any]) -> None:
    """The documented train function."""
    settings = TrainingSettings.model_validate(config["settings"])
    folder, rank = Path(config["folder"]), ray.train.get_context().get_world_rank()
    (folder / f"rank-{rank}").write_text(str(os.getpid()), encoding="ascii")
    torch.manual_seed(settings.run.seed)
    bundle = datasets.load_dataset(settings.data)
    model = prepare_model(models.build_model(settings.model, bundle.spec))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.optimizer.learning_rate)
    batch = settings.loop.global_batch // settings.scale.workers
    loader = prepare_data_loader(DataLoader(training_tensors(settings), batch_size=batch, shuffle=True))
    start_epoch, step = 0, 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as saved:
            state = torch.load(Path(saved, _FILE))
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start_epoch, step = state["epoch"], state["step"]
    is_saved_for_preemption = False
    if rank == 0:
        log(folder, Mark(what="start", step=step))
    for epoch in range(start_epoch, settings.loop.epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0:
                log(folder, Mark(what="step", step=step))
            if config["may_be_preempted"] and not is_saved_for_preemption and ray.train.get_preemption_info():
                is_saved_for_preemption = True
                with _saved(rank, model=model, optimizer=optimizer, epoch=epoch, step=step) as checkpoint:
                    ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)
        with _saved(rank, model=model, optimizer=optimizer, epoch=epoch + 1, step=step) as checkpoint:
            ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)


@contextmanager
def _saved(
    rank: int, *, model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int, step: int
) -> Iterator[Checkpoint | None]:
    """A checkpoint in a temporary folder; rank 0 has it, as documented for data parallel training."""
    if rank != 0:
        yield None
        return
    assert isinstance(model.module, torch.nn.Module)
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder, _FILE))
        yield Checkpoint.from_directory(folder)


def main(settings_file: str, folder: str) -> None:
    """Train until somebody ends this process."""
    settings = TrainingSettings.model_validate_json(Path(settings_file).read_text(encoding="utf-8"))
    address = settings.scale.address
    if address is None:
        ray.init("local", num_cpus=max(os.cpu_count() or 1, settings.scale.workers + 1))
    else:
        ray.init(address)
    TorchTrainer(
        train_loop,
        train_loop_config={
            "settings": settings.model_dump(mode="json"),
            "folder": folder,
            "may_be_preempted": address is not None,
        },
        scaling_config=ScalingConfig(num_workers=settings.scale.workers, use_gpu=settings.scale.gpu),
        run_config=RunConfig(
            storage_path=folder,
            name="documented",
            failure_config=FailureConfig(max_failures=-1),
            callbacks=[FailureLog(folder)],
        ),
    ).fit()


if __name__ == "__main__":
    main(*sys.argv[1:3])
