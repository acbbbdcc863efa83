"""What a run needs beside its checkpoints to be resumed on another machine: its settings and its own code, in the bucket too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.spec.errors import PlatformError, SettingsError
from infra.spec.section import validate
from training.checkpoint.remote.access import refusal
from training.checkpoint.remote.bucket import RemoteStoreError, RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.code import kept
from training.code.identity import identity_file
from training.config.schema import CheckpointSettings

_FOLDER: Final = "run/"
_KEY: Final = "checkpoint.remote="


def files_of(run: Path) -> dict[str, Path]:
    """The files by the names of their objects. The archive of the code is before the record that names it."""
    found = {}
    identity = kept.current_identity(run)
    if identity is not None:
        archive = run / kept.archive_name(identity)
        for file in (identity_file(archive), archive, run / kept.CURRENT_FILE):
            found[f"{_FOLDER}{file.relative_to(run)}"] = file
    found[f"{_FOLDER}settings.yaml"] = run / "settings.yaml"
    return {name: file for name, file in found.items() if file.is_file()}


def bring_back(run: str | None, changes: Sequence[str], *, root: Path) -> None:
    """Make the folder of a run that this machine does not have, if the command line names its bucket.

    Args:
        run: name of the run, as it is below `root`.
        changes: the values of `--set`, of which `checkpoint.remote=s3://…` names the bucket.
        root: folder of the runs.

    Raises:
        PlatformError: the bucket cannot be read, or has no such run.
    """
    given = [change.removeprefix(_KEY) for change in changes if change.startswith(f"{_KEY}s3://")]
    if run is None or not given or "/" in run or (root / run / "settings.yaml").exists():
        return
    settings = validate(CheckpointSettings, {"remote": given[-1]}, above="checkpoint")
    location = RemoteLocation.of(settings, run)
    assert location is not None
    try:
        bucket = RunBucket(location)
        names = [one.name for one in bucket.objects(_FOLDER)]
        if f"{_FOLDER}settings.yaml" not in names:
            raise SettingsError(
                f"run {run}: neither {root} nor {location.url} has it",
                remedy="correct the name or checkpoint.remote, or start it: make train",
            )
        for name in sorted(names, key=lambda name: name.endswith("settings.yaml")):
            file = root / run / name.removeprefix(_FOLDER)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bucket.read(name).data)
    except RemoteStoreError as error:
        raise refusal(location, error) from error
    except OSError as error:
        raise PlatformError(
            f"{root / run} cannot be written: {error.strerror}", remedy="choose another --root"
        ) from error
