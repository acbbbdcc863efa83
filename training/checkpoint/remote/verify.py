"""Verifies the checkpoints of a run in its bucket, by reading them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from training.checkpoint.remote.access import refusal
from training.checkpoint.remote.bucket import RemoteStoreError, RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.store import folder_name
from training.config.load import load_settings
from training.rundir import RunDirectory


def verify_bucket(run: RunDirectory) -> dict[str, list[str]]:
    """Every committed checkpoint of a run in its bucket by address, oldest first, with its problems; none without a bucket.

    Each file is downloaded, compared with its sha256, and removed.

    Raises:
        PreflightError: the bucket cannot be read.
    """
    settings = load_settings([run.settings_file], environment={}, checks_names=False)
    location = RemoteLocation.of(settings.checkpoint, run.name)
    if location is None:
        return {}
    try:
        tier = RemoteTier(RunBucket(location))
        with tempfile.TemporaryDirectory(dir=run.path) as scratch:
            return {
                f"{location.url}/{folder_name(one.step)}": tier.verify(one, Path(scratch)) for one in tier.checkpoints()
            }
    except RemoteStoreError as error:
        raise refusal(location, error) from error
