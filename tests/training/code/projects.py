"""Code folders as users have them, and git work trees."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.training.launch.ranks import on_ranks
from tests.training.runs import small_settings
from training.code import kept
from training.code.archive import pack
from training.config.schema import TrainingSettings
from training.launch.task import RankPlace, RankTask
from training.worker import run_rank

FILES = {
    "nets.py": "def make(spec, **options):\n    return None\n",
    "package/__init__.py": "",
    "package/data.py": "ROWS = 3\n",
    "train.yaml": "run: {seed: 1}\n",
}


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """A folder with these files."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, with an author."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def committed(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """A work tree with these files in its only commit."""
    write(folder, files)
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


NETS = '''
from torch import nn


def make(spec, *, width=16, dropout=0.3):
    """Dropout and batch norm over the features of a table."""
    features = spec.shape[0]
    return nn.Sequential(
        nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, spec.outputs)
    )
'''

TABLES = '''
import torch

from training.data.fingerprint import fingerprint
from training.data.tables import TableSplit
from training.data.types import DataBundle, SampleSpec


class Scaled(TableSplit):
    """A split of a class of the user's own, which loader workers need."""


def load(settings):
    """500 rows of 5 features and a target that depends on them."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(500, 5, generator=generator)
    targets = inputs[:, :1] * 2 - inputs[:, 1:2] + 0.1 * torch.randn(500, 1, generator=generator)
    train, validation, test = (
        Scaled(inputs[rows], targets[rows]) for rows in (slice(0, 320), slice(320, 400), slice(400, 500))
    )
    content = {"inputs": inputs.numpy(), "targets": targets.numpy()}
    spec = SampleSpec(shape=(5,), outputs=1)
    return DataBundle(
        name="mine", spec=spec, train=train, validation=validation, test=test, fingerprint=fingerprint({}, content)
    )
'''

LOSSES = '''
from observability.objective_metrics import Metric
from training.objectives.objective import Objective


class Absolute(Objective):
    """The absolute error, and how many predictions are too low."""

    sums = ("loss", "low")
    metrics = (Metric(name="loss"), Metric(name="low", is_ratio=True))

    def __init__(self, spec):
        pass

    def measure(self, outputs, targets):
        error = targets - outputs
        return error.abs().sum(), (error > 0).sum()
'''

OWN = {
    "own_project/__init__.py": "",
    "own_project/nets.py": NETS,
    "own_project/tables.py": TABLES,
    "own_losses.py": LOSSES,
}
"""A model with dropout and batch norm, a dataset and an objective of a user's own."""


def settings(*, epochs: int = 6, **sections: dict[str, Any]) -> TrainingSettings:
    """A run of `OWN`."""
    own: dict[str, dict[str, Any]] = {
        "model": {"name": "own_project.nets:make"},
        "data": {"dataset": "own_project.tables:load"},
        "objective": {"name": "own_losses:Absolute"},
        "loop": {"epochs": epochs, "global_batch": 32},
    }
    return small_settings(**{**own, **{name: {**own.get(name, {}), **values} for name, values in sections.items()}})


def uninterrupted(chosen: TrainingSettings, folder: Path) -> str:
    """The weights of a run of `OWN` that nothing happens to."""
    run = folder / "run"
    run.mkdir(parents=True)
    own = kept.keep(run, pack(write(folder / "mine", OWN)))
    task = RankTask(settings=chosen, run_directory=run, attempt=0, code=own)
    return on_ranks(chosen.scale.workers, _run_at, task)[0]


def _run_at(place: RankPlace, task: RankTask) -> str:
    return run_rank(task, place).weights_sha256
