"""The suite's program on this machine: two ranks of torchrun, gloo, real files, a moto server as S3, MLflow's embedded store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.engines.s3 import S3Api
from tests.training.cli.command import ROOT
from training.config.load import load_settings, render

RANKS = 2
UNREACHABLE = "192.0.2.1:9"
"""An address of documentation (RFC 5737), which nobody has."""

OWN, FOREIGN = "research", "platform"


def settings_file(folder: Path, name: str) -> Path:
    """Settings of the run, as the suite writes them for a cluster, but for this machine; written to a folder."""
    settings = load_settings(
        ["digits"],
        overrides=[
            f"run.name={name}",
            f"run.directory={folder / 'runs'}",
            "model.name=mlp",
            "data.dataset=training.conformance.victim:digits",
            f"data.options={{run: {folder / 'runs' / name}, rank: 1}}",
            "loop.epochs=4",
            "loop.global_batch=64",
            "checkpoint.every_steps=10",
            "scale.launcher=torchrun",
            f"scale.workers={RANKS}",
            "metrics.exporter=none",
            "tracking.registered_model=conformance",
            "tracking.checkpoint_models=false",
        ],
        environment={},
    )
    file = folder / f"{name}.yaml"
    file.write_text(render(settings), encoding="utf-8")
    return file


def program(folder: Path, name: str, s3: S3Api) -> subprocess.Popen[str]:
    """The program of the job, whose output is the driver's log."""
    words = ["-m", "training.conformance", "job", "--config", str(settings_file(folder, name)), "--here"]
    words += ["--allowed", urlsplit(s3.endpoint).netloc, "--denied", UNREACHABLE]
    words += ["--nodes", str(RANKS), "--bucket", s3.bucket, "--own", OWN, "--foreign", FOREIGN]
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **s3.environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
