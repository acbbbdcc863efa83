"""The baseline of a search: Ray's documented pattern for tuning a distributed trainer, with the training loop of `ray_documented`.

As in "Hyperparameter Tuning with Ray Tune" of the pinned version's documentation, a trial is a driver function that calls
`TorchTrainer.fit` with a `TuneReportCallback`. Each trial therefore starts, besides its driver and its workers, six actors of Ray's own:
TrainController, PlacementGroupCleaner, PreemptionWatcher, SynchronizationActor, DatasetManager and a queue of results. Their
processes start and import Ray one after the other; training takes a small part of the time.

Usage: `python -m observability.benchmarks.tune_documented SETTINGS.json FOLDER CONCURRENCY LEARNING_RATE…`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.tune
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback

from observability.benchmarks.ray_documented import train_loop
from training.config.schema import TrainingSettings


def train_trial(config: dict[str, Any]) -> None:
    """The documented driver function."""
    settings = TrainingSettings.model_validate(config["settings"])
    optimizer = settings.optimizer.model_copy(update={"learning_rate": config["learning_rate"]})
    changed = settings.model_copy(update={"optimizer": optimizer})
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"settings": changed.model_dump(mode="json")},
        scaling_config=ray.train.ScalingConfig(num_workers=settings.scale.workers, use_gpu=settings.scale.gpu),
        run_config=ray.train.RunConfig(
            storage_path=config["folder"],
            name=f"train-trial_id={ray.tune.get_context().get_trial_id()}",
            callbacks=[TuneReportCallback()],
        ),
    )
    trainer.fit()


def main(settings_file: str, folder: str, concurrency: str, *rates: str) -> None:
    """Run the search.

    Raises:
        RuntimeError: a trial failed.
    """
    settings = TrainingSettings.model_validate_json(Path(settings_file).read_text(encoding="utf-8"))
    # A driver function reserves a CPU by default. With these, no trial waits for CPUs that another one has.
    ray.init(num_cpus=int(concurrency) * (1 + settings.scale.workers))
    tuner = ray.tune.Tuner(
        train_trial,
        param_space={
            "settings": settings.model_dump(mode="json"),
            "folder": folder,
            "learning_rate": ray.tune.grid_search([float(rate) for rate in rates]),
        },
        run_config=ray.tune.RunConfig(storage_path=folder, name="search"),
        tune_config=ray.tune.TuneConfig(max_concurrent_trials=int(concurrency)),
    )
    results = tuner.fit()
    if results.errors:
        raise RuntimeError(f"{results.num_errors} of {len(rates)} trials failed, the first with: {results.errors[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
