"""Checkpoints that a trial copies from another one, under population based training.

trials/t001/donated/step-00000120/   a checkpoint that others may copy: hard links, which retention does not remove
trials/t004/inherits.json            a copy that has begun; whoever drives the trial next completes it
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from observability.runlog import Restored, read_all, select
from training.checkpoint.manifest import MANIFEST_FILE, Manifest
from training.checkpoint.store import committed_steps, folder_name
from training.rundir import RunDirectory
from tune.events import TrialExploited

DONATED = "donated"
"""Folder in a run's folder of the checkpoints that other trials may copy."""

_INHERITS = "inherits.json"
_COMMIT_SECONDS = 300.0
_POLL_SECONDS = 0.02
_DONATIONS = 2
"""Donated checkpoints to keep: the newest, and the one that a slow copy may still be of."""


@dataclass(frozen=True, kw_only=True)
class Donation:
    """A checkpoint of a trial that another one may continue from.

    Attributes:
        trial: the donor.
        folder: absolute path of its copy of the checkpoint.
        epoch: epochs trained.
        step: optimizer steps trained.
        weights_sha256: hash of the weights.
    """

    trial: str
    folder: str
    epoch: int
    step: int
    weights_sha256: str

    def write(self, path: Path) -> None:
        """Write it as JSON, by an atomic rename."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Donation:
        """Read what `write` has written."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def donate(run: RunDirectory, *, epoch: int, step: int, patience: float = _COMMIT_SECONDS) -> Donation:
    """Keep the checkpoint of a step for other trials, once it is committed.

    Args:
        run: the donor.
        epoch: epochs that the checkpoint has trained.
        step: its step.
        patience: seconds to wait for the commit.

    Raises:
        TimeoutError: the step has no committed checkpoint.
    """
    kept = run.path / DONATED / folder_name(step)
    deadline = time.monotonic() + patience
    while not (kept / MANIFEST_FILE).exists():
        if step not in committed_steps(run.checkpoints):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{run.checkpoints / folder_name(step)} was not committed within {patience:g} s")
            time.sleep(_POLL_SECONDS)
            continue
        _link(run.checkpoints / folder_name(step), kept)
    for old in sorted(path for path in kept.parent.glob("step-*") if path != kept)[: -(_DONATIONS - 1)]:
        shutil.rmtree(old)
    return Donation(
        trial=run.name, folder=str(kept.resolve()), epoch=epoch, step=step, weights_sha256=_weights_sha256(kept)
    )


def donated_weights(run: RunDirectory, *, step: int) -> str:
    """Hash of the weights of a donated checkpoint."""
    return _weights_sha256(run.path / DONATED / folder_name(step))


def lost_donation(run: RunDirectory, exploits: Sequence[TrialExploited]) -> Donation | None:
    """The newest donation of a trial if it has not begun with it, because the driver was killed before; None otherwise.

    Args:
        run: the trial that is to copy it.
        exploits: what the search has recorded of the trial.
    """
    if not exploits:
        return None
    newest = exploits[-1]
    restored = (event for event in select(read_all(run.path), Restored) if event.time > newest.time)
    taken = {(event.step, event.weights_sha256) for event in restored}
    folder = run.path.parent / newest.donor / DONATED / folder_name(newest.step)
    if (newest.step, newest.weights_sha256) in taken or not (folder / MANIFEST_FILE).exists():
        return None
    return Donation(
        trial=newest.donor,
        folder=str(folder.resolve()),
        epoch=newest.epoch,
        step=newest.step,
        weights_sha256=newest.weights_sha256,
    )


def inherit(run: RunDirectory, donation: Donation) -> None:
    """Replace the trial's checkpoints by the donated one; nobody drives the trial meanwhile."""
    donation.write(run.path / _INHERITS)
    complete(run)


def complete(run: RunDirectory) -> None:
    """Complete a copy that was cut off, if there is one."""
    intent = run.path / _INHERITS
    if not intent.exists():
        return
    donation = Donation.read(intent)
    for path in run.checkpoints.glob("step-*"):
        shutil.rmtree(path)
    _link(Path(donation.folder), run.checkpoints / folder_name(donation.step))
    intent.unlink()


def _link(source: Path, target: Path) -> None:
    """Link the files of a checkpoint, the manifest last; copy them where the file system has no hard links."""
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, partial, copy_function=_link_or_copy)
    partial.rename(target)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _weights_sha256(checkpoint: Path) -> str:
    return Manifest.decode((checkpoint / MANIFEST_FILE).read_bytes()).weights_sha256
