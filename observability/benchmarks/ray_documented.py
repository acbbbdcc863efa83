"""The baseline for wall time: the training loop of Ray Train's documentation on the same job.

`prepare_model`, `prepare_data_loader` and `ray.train.report` with a checkpoint per epoch, as documented for the pinned Ray version.
Usage: `python -m observability.benchmarks.ray_documented SETTINGS.json FOLDER`. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from observability.benchmarks.bare_ddp import training_tensors
from training.config.schema import TrainingSettings
from training.data import registry as datasets
from training.models import registry as models


def train_loop(config: dict[str, Any]) -> dict[str, float]:
    """The documented train function; returns the Unix time at which its first step ended."""
    settings = TrainingSettings.model_validate(config["settings"])
    torch.manual_seed(settings.run.seed)
    bundle = datasets.load_dataset(settings.data)
    model = prepare_model(models.build_model(settings.model, bundle.spec))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.optimizer.learning_rate)
    batch = settings.loop.global_batch // settings.scale.workers
    loader = prepare_data_loader(DataLoader(training_tensors(settings), batch_size=batch, shuffle=True))
    first = 0.0
    for epoch in range(settings.loop.epochs):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            first = first or time.time()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))
    return {"first_step_time": first}


def main(settings_file: str, folder: str) -> None:
    """Run the job and print the time of its first step."""
    settings = TrainingSettings.model_validate_json(Path(settings_file).read_text(encoding="utf-8"))
    # By itself Ray waits for ever for workers that the machine has no cores for.
    ray.init(num_cpus=max(os.cpu_count() or 1, settings.scale.workers + 1))
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"settings": settings.model_dump(mode="json")},
        scaling_config=ScalingConfig(num_workers=settings.scale.workers, use_gpu=settings.scale.gpu),
        run_config=RunConfig(storage_path=folder, name="documented"),
    )
    result = trainer.fit()
    print(json.dumps(result.return_value))


if __name__ == "__main__":
    main(*sys.argv[1:3])
