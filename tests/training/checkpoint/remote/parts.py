"""Shared by the tests of buckets: connections, checkpoints in both tiers, and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.engines.s3_faults import Fault, Request
from tests.training.checkpoint.parts import saved_run
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.store import CheckpointStore, local_store
from training.config.schema import CheckpointSettings

PART = 5 * 2**20
"""The smallest part that S3 takes, except for the last one."""


def connect(remote: str, *, attempts: int = 1, read_seconds: float = 20.0, run: str = "run") -> RunBucket:
    """The part of a run, with parts as small as S3 permits."""
    location = RemoteLocation.of(CheckpointSettings(remote=remote), run)
    assert location is not None
    return RunBucket(location, attempts=attempts, read_seconds=read_seconds, part_bytes=PART)


def saved(folder: Path, *steps: int) -> CheckpointStore:
    """A local store with checkpoints of these steps."""
    saved_run(folder, *steps)
    return local_store(folder)


def upload_all(store: CheckpointStore, bucket: RunBucket) -> RemoteTier:
    """Copy a store's checkpoints to a bucket."""
    tier = RemoteTier(bucket)
    for manifest in store.manifests():
        tier.upload(manifest, store.path(manifest.step), confirm=nothing, on_bytes=ignore)
    return tier


def failing(what: int | str, *, times: int = 10**9, when: Callable[[Request], bool] = lambda _request: True) -> Fault:
    """The first requests of a kind end like this."""
    left = times

    def fault(request: Request) -> int | str | None:
        nonlocal left
        if left <= 0 or not when(request):
            return None
        left -= 1
        return what

    return fault


def puts(name: str) -> Callable[[Request], bool]:
    """Whether a request writes an object, or a part of one, whose key ends like this."""
    return lambda request: request.method == "PUT" and request.path.endswith(name)


def nothing() -> None:
    """Confirm that nobody else writes."""


def ignore(_count: int) -> None:
    """Take no notice of progress."""
