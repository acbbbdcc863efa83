"""What a bucket behind the local disk costs the loop, and how fast checkpoints reach it and come back."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from observability.benchmarks.measure import Comparison, measure_alternately
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.ranks import OneRank
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.remote.uploader import Uploader
from training.checkpoint.retention import Retention
from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import CheckpointStore, FileWriter, local_store
from training.checkpoint.writer import AsyncCheckpointer
from training.config.schema import CheckpointSettings

STALL_GOAL = 1.10
"""Of the loop's wait for a checkpoint, with a bucket behind the disk, to the wait without."""

SPEED_GOAL = 0.7
"""Of the speed of boto3's transfer manager alone."""

_IDENTITY = Identity(model="linear", dataset_fingerprint="", global_batch=1, seed=0, world=1, platform_version="")
_KEEP = Retention(keep_last=1, keep_best=0, higher_is_better=True)
_WIDTH = 1024  # with AdamW's moments 12.6 MB
_SAVES = 20
_STEPS_PER_SAVE = 25
_CHUNK = 2**20


def compare(remote: str, *, rounds: int, megabytes: int, scratch: Path) -> Iterator[Comparison]:
    """Compare against an S3 API that boto3 finds by its variables.

    Args:
        remote: address of a folder of a bucket, whose content is removed.
        rounds: of each comparison.
        megabytes: size of the checkpoint of the transfers, in two files.
        scratch: a folder on the local disk.
    """
    yield from _compare_stalls(remote, rounds=rounds, scratch=scratch)
    yield from _compare_transfers(remote, rounds=rounds, megabytes=megabytes, scratch=scratch)


def _compare_stalls(remote: str, *, rounds: int, scratch: Path) -> Iterator[Comparison]:
    """The median wait of a save, and the median step between saves; both sides save to the local disk alike."""
    steps: dict[str, list[float]] = {"behind": [], "alone": []}

    def with_a_bucket() -> float:
        with _bucket(remote) as bucket:
            stall, step = _loop(Path(tempfile.mkdtemp(dir=scratch)), bucket)
        steps["behind"].append(step)
        return stall

    def disk_alone() -> float:
        stall, step = _loop(Path(tempfile.mkdtemp(dir=scratch)), None)
        steps["alone"].append(step)
        return stall

    ours, theirs = measure_alternately(rounds, with_a_bucket, disk_alone)
    yield Comparison(
        name="stall of a checkpoint, S3 behind the disk", unit="s", ours=ours, theirs=theirs, goal=STALL_GOAL
    )
    yield Comparison(
        name="step while it is uploaded",
        unit="s",
        ours=steps["behind"],
        theirs=steps["alone"],
        goal=STALL_GOAL,
    )


def _loop(folder: Path, bucket: RunBucket | None) -> tuple[float, float]:
    """Train and save; returns the median stall of a save and the median of a step in seconds."""
    torch.set_num_threads(1)
    model = nn.Linear(_WIDTH, _WIDTH, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.ones(64, _WIDTH)
    states = StateRegistry(model=ModelState(model), optimizer=OptimizerState(optimizer, model))
    store = local_store(folder)
    stalls, steps = [], []
    with (
        AsyncCheckpointer(store, ranks=OneRank(), identity=_IDENTITY, retention=_KEEP, start_step=0) as writer,
        nullcontext() if bucket is None else _uploading(store, bucket) as uploader,
    ):
        for step in range(1, _SAVES * _STEPS_PER_SAVE + 1):
            began = time.perf_counter()
            model(inputs).sum().backward()
            optimizer.step()
            steps.append(time.perf_counter() - began)
            if step == 1:
                writer.reserve(states)
            if step % _STEPS_PER_SAVE == 0:
                progress = TrainProgress(step=step, epoch=1, step_in_epoch=step, samples=step)
                stalls.append(writer.save(progress, states, metric=None))
            if writer.poll() and uploader is not None:
                uploader.notify()
    return statistics.median(stalls), statistics.median(steps)


@contextmanager
def _uploading(store: CheckpointStore, bucket: RunBucket) -> Iterator[Uploader]:
    uploader = Uploader(
        RemoteTier(bucket),
        store,
        beside=dict,
        retention=_KEEP,
        start_step=0,
        confirm=lambda: None,
        cancel=bucket.cancel,
    )
    try:
        yield uploader
    finally:
        uploader.close()


def _compare_transfers(remote: str, *, rounds: int, megabytes: int, scratch: Path) -> Iterator[Comparison]:
    """Ours verifies the files before an upload and after a download, and commits a manifest; theirs transfers the same files."""
    store = local_store(scratch / "large")
    sizes = {"model.safetensors": megabytes // 3, "optimizer.safetensors": megabytes - megabytes // 3}
    files = {name: _random_file(size) for name, size in sizes.items()}
    manifest = store.commit(step=1, identity=_IDENTITY, metric=None, files=files, expected_bytes=megabytes << 20)
    folder, copies = store.path(1), scratch / "copies"
    copies.mkdir()

    def speed(transfer: Callable[[], object]) -> float:
        began = time.perf_counter()
        transfer()
        return megabytes / (time.perf_counter() - began)

    def verified_upload() -> float:
        with _bucket(remote) as bucket:
            return speed(lambda: _verify_and_upload(store, bucket))

    def transfer_manager_up() -> float:
        with _bucket(remote) as bucket:
            return speed(lambda: _plain(bucket, "upload_file", {name: folder / name for name in sizes}))

    yield _speed(f"{megabytes} MB to S3", *measure_alternately(rounds, verified_upload, transfer_manager_up))
    with _bucket(remote) as bucket:
        _verify_and_upload(store, bucket)
        (checkpoint,) = RemoteTier(bucket).checkpoints()

        def verified_download() -> float:
            return speed(lambda: RemoteTier(bucket).fetch(checkpoint, local_store(copies)))

        def transfer_manager_down() -> float:
            place = f"step-{manifest.step:08d}"
            return speed(lambda: _plain(bucket, "download_file", {f"{place}/{name}": copies / name for name in sizes}))

        yield _speed(f"{megabytes} MB from S3", *measure_alternately(rounds, verified_download, transfer_manager_down))


def _speed(name: str, ours: list[float], theirs: list[float]) -> Comparison:
    return Comparison(name=name, unit="MB/s", ours=ours, theirs=theirs, goal=SPEED_GOAL, higher_is_better=True)


def _verify_and_upload(store: CheckpointStore, bucket: RunBucket) -> None:
    problems = store.verify(1)
    assert not problems, problems
    RemoteTier(bucket).upload(store.manifests()[0], store.path(1), confirm=lambda: None, on_bytes=lambda _count: None)


def _plain(bucket: RunBucket, method: str, files: dict[str, Path]) -> None:
    """Transfer files by the names of their objects, each by a client of its own with boto3's defaults."""
    import boto3  # noqa: PLC0415 - not without this comparison

    for name, path in files.items():
        client: Any = boto3.session.Session().client("s3")
        place = {"Bucket": bucket.location.bucket, "Key": bucket.location.key(name)}
        getattr(client, method)(Filename=str(path), **place)


@contextmanager
def _bucket(remote: str) -> Iterator[RunBucket]:
    """A run's part of the bucket, which is empty afterwards."""
    location = RemoteLocation.of(CheckpointSettings(remote=remote), "run")
    assert location is not None
    bucket = RunBucket(location)
    try:
        yield bucket
    finally:
        last = RunBucket(location)
        last.abort_uploads()
        last.remove(*(one.name for one in last.objects()))


def _random_file(megabytes: int) -> FileWriter:
    """A writer of a file of random content, which nothing on the way can compress."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(_CHUNK))

    return write
