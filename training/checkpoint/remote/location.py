"""Where a run's checkpoints are in a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from training.config.schema import CheckpointSettings

_SCHEME = "s3://"


@dataclass(frozen=True, kw_only=True)
class RemoteLocation:
    """The part of a bucket that belongs to one run.

    Attributes:
        bucket: name of the bucket.
        folder: prefix of the run's keys, without a slash at either end; its last part is the run's name.
        owner: AWS account that the bucket must belong to; None accepts any.
        setting: `checkpoint.remote`, for messages.
    """

    bucket: str
    folder: str
    owner: str | None
    setting: str

    @classmethod
    def of(cls, settings: CheckpointSettings, run: str) -> RemoteLocation | None:
        """The location of a run's checkpoints under `checkpoint.remote`; None if it is not set."""
        if settings.remote is None:
            return None
        bucket, _, prefix = settings.remote.removeprefix(_SCHEME).partition("/")
        above = prefix.strip("/")
        folder = f"{above}/{run}" if above else run
        return cls(bucket=bucket, folder=folder, owner=settings.remote_owner, setting=settings.remote)

    @property
    def url(self) -> str:
        """The location for people, e.g. `s3://bucket/team/run`."""
        return f"{_SCHEME}{self.bucket}/{self.folder}"

    def key(self, name: str) -> str:
        """Key of an object by its path below the run's prefix, e.g. `step-00000050/manifest.json`."""
        return f"{self.folder}/{name}"
