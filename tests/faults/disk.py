"""A run on a small disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.engines.ray_cluster import short_folder
from tests.engines.small_disk import small_disk
from tests.faults.run import FaultedRun
from training.config.schema import TrainingSettings


@contextmanager
def run_on_small_disk(settings: TrainingSettings) -> Iterator[FaultedRun]:
    """A run whose folder is on a disk of 300 MiB; skips without the right to mount one."""
    with short_folder() as folder, small_disk(folder / "disk", size="300m") as disk:
        run = FaultedRun(settings, folder, root=disk)
        try:
            yield run
        finally:
            run.close()
