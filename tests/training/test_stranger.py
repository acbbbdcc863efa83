"""A user's first hour: a new project, its changes, its tests, its notebook, all in real processes outside the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from observability.runlog import Evaluated, read_all, select
from tests.processes import run_command
from tests.training.launch.driver import ROOT, Driver
from training.data.holdout import hold_out

TORCHRUN = ("--launcher", "torchrun")


def python(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the platform on its import path."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    ended = run_command([sys.executable, *arguments], cwd=cwd, env=variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project in a fresh folder."""
    folder = tmp_path / "tumour-cost"
    python("-m", "training", "new", str(folder))
    return folder


def edit(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{file}: {old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def training(project: Path, name: str, *options: str) -> Driver:
    """Start `train --code`; the runs are beside the project."""
    runs = project.parent / "runs"
    where = ("--name", name, "--set", f"run.directory={runs}", "--set", "tracking.enabled=false")
    return Driver("train", "--code", str(project), *where, *options, run=runs / name)


def train(project: Path, name: str, *options: str) -> Path:
    """Train to the end; returns the run's folder."""
    with training(project, name, *options) as driver:
        ended = driver.end()
    assert ended.status == 0, ended.out + ended.err
    return driver.run


def reported(run: Path) -> dict[str, float]:
    """The metrics of the test split."""
    event = [event for event in select(read_all(run), Evaluated) if event.split == "test"][-1]
    return {"loss": event.loss, **event.metrics}


def tumours(test_fraction: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The test split, standardized by the training split: measurements and whether each is malignant."""
    inputs, is_benign = load_breast_cancer(return_X_y=True)
    targets = 1 - is_benign
    rest, test = hold_out(targets, test_fraction)
    train = rest[hold_out(targets[rest], 0.1)[0]]
    standard = (inputs - inputs[train].mean(axis=0)) / inputs[train].std(axis=0)
    return torch.tensor(standard[test]).float(), torch.tensor(targets[test])


def exported_logits(run: Path, module: nn.Sequential, inputs: torch.Tensor) -> torch.Tensor:
    """The exported weights in a module of plain torch."""
    stored = load_file(run / "model" / "model.safetensors")
    module.load_state_dict({name.removeprefix("layers."): value for name, value in stored.items()})
    with torch.no_grad():
        logits: torch.Tensor = module.eval()(inputs)
    return logits.flatten()


def test_a_new_project_trains_at_once_and_its_model_is_registered(project: Path) -> None:
    """On two ranks under Ray, as `make train CODE=…` starts them."""
    command = ("-m", "training", "train", "--code", project.name, "--name", "first")
    ended = python(*command, cwd=project.parent, RTP_RUN_DIRECTORY="")
    run = project.parent / ".local" / "runs" / "first"
    assert not ended.stderr
    inputs, targets = tumours(0.2)
    layers = (nn.Flatten(), nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 1))
    logits = exported_logits(run, nn.Sequential(*layers), inputs)
    losses = binary_cross_entropy_with_logits(logits, targets.float(), reduction="none")
    expected = {
        "loss": float((losses * torch.where(targets == 1, 2, 1)).mean()),
        "accuracy": float(((logits > 0) == (targets == 1)).float().mean()),
        "missed": float((logits[targets == 1] <= 0).float().mean()),
    }
    assert reported(run) == pytest.approx(expected)
    assert expected["accuracy"] > 0.9
    assert re.search(r"MLflow +run \w+, model tumour_cost", ended.stdout), ended.stdout


@pytest.mark.extended
def test_the_tests_of_a_new_project_pass_and_fail_with_the_project(project: Path) -> None:
    assert "5 passed" in python("-m", "pytest", cwd=project).stdout
    edit(project / "tumour_cost" / "objective.py", ("(self.missed_cost - 1)", "self.missed_cost"))
    with pytest.raises(AssertionError, match="1 failed, 4 passed"):
        python("-m", "pytest", cwd=project)


@pytest.mark.extended
def test_the_notebook_of_a_new_project_evaluates_a_run(project: Path, tmp_path: Path) -> None:
    # Over 20 CPU seconds: the run and the notebook that reads it are separate processes, as a user has them.
    run = train(project, "tumour_cost-first", *TORCHRUN)
    execute = ("nbconvert", "--to", "notebook", "--execute", "--output-dir", str(tmp_path), "results.ipynb")
    python("-m", *execute, cwd=project, RTP_RUN_DIRECTORY=str(run.parent), JUPYTER_PLATFORM_DIRS="1")
    notebook = json.loads((tmp_path / "results.ipynb").read_text(encoding="utf-8"))
    cells = {cell["id"]: cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"}
    assert str(run) in "".join(cells["run"][0]["text"])
    shown = json.loads("".join(cells["evaluation"][0]["data"]["text/plain"]).replace("'", '"'))
    assert shown == pytest.approx(reported(run))
    for plot in ("curves", "histogram"):
        assert any("image/png" in output.get("data", {}) for output in cells[plot])
    assert np.isfinite(shown["loss"])
