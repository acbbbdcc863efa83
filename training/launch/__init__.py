"""Three ways to start the ranks of a run: a plain process, torchrun, and Ray Train. All of them run `training.worker`."""

from __future__ import annotations

from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.task import Launcher


def make_launcher(scale: ScaleSettings, *, scratch: Path) -> Launcher:
    """The launcher that the settings name; `scratch` is a folder for its own files. Nothing is started yet."""
    if scale.launcher == "ray":
        from training.launch.ray_train import RayLauncher  # noqa: PLC0415

        return RayLauncher(scale, scratch=scratch)
    from training.launch.local import ProcessLauncher  # noqa: PLC0415

    return ProcessLauncher()
