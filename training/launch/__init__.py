"""Launchers start the ranks of a run: as a plain process, with torchrun, or with Ray Train. All of them run `training.worker`."""

from __future__ import annotations

from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.local import ProcessLauncher
from training.launch.ray_train import RayLauncher
from training.launch.task import Launcher


def make_launcher(scale: ScaleSettings, *, scratch: Path) -> Launcher:
    """The configured launcher; starts nothing yet. `scratch` is a folder for its temporary files."""
    return RayLauncher(scale, scratch=scratch) if scale.launcher == "ray" else ProcessLauncher()
