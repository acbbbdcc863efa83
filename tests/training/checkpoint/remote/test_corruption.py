"""Random damage to a run's checkpoints, here and in the bucket: never wrong weights, never an error that only a programmer understands."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same
from tests.training.checkpoint.remote.parts import saved, upload_all
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.newest import newest_good
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.store import CheckpointStore, local_store
from training.errors import CheckpointError

STEPS = (10, 20)
Damage = Callable[[bytes, random.Random], bytes]
Tensors = dict[str, Tensor]


def flip_a_byte(data: bytes, source: random.Random) -> bytes:
    """Change one byte."""
    place = source.randrange(len(data))
    return data[:place] + bytes([data[place] ^ source.randrange(1, 256)]) + data[place + 1 :]


def truncate(data: bytes, source: random.Random) -> bytes:
    """Cut the end off."""
    return data[: source.randrange(len(data))]


def damage(data: bytes, source: random.Random) -> bytes:
    """Do either."""
    return source.choice([flip_a_byte, truncate])(data, source)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> CheckpointStore:
    """Checkpoints of two steps."""
    return saved(tmp_path_factory.mktemp("pristine"), *STEPS)


def weights(store: CheckpointStore, step: int) -> SmallRun:
    """A run restored from a checkpoint that is known to be good."""
    run = SmallRun(seed=3)
    run.load(store.open(step, IDENTITY))
    return run


def assert_restores_what_was_saved(store: CheckpointStore, tier: RemoteTier | None, pristine: CheckpointStore) -> None:
    """Restore: either the very tensors of one of the steps, or a refusal that names the checkpoints."""
    refusal: CheckpointError | None = None
    found = None
    try:
        found = newest_good(store, tier, IDENTITY, report=lambda _line: None)
    except CheckpointError as error:
        refusal = error
    if found is None:  # no manifest is left anywhere
        assert refusal is None or (refusal.remedy and "checkpoints in" in str(refusal))
        return
    run = SmallRun(seed=1)
    run.load(found)
    assert_same(run.tensors(), weights(pristine, found.progress.step).tensors())


def damaged_copy(pristine: CheckpointStore, folder: Path, source: random.Random) -> CheckpointStore:
    """A copy of which one file of each step, or of one step, is damaged."""
    store = local_store(folder)
    for step in STEPS:
        shutil.copytree(pristine.path(step), store.path(step))
    for step in source.choice([STEPS, STEPS[-1:]]):
        file = source.choice(sorted(store.path(step).iterdir()))
        file.write_bytes(damage(file.read_bytes(), source))
    return store


def run_here(pristine: CheckpointStore, folder: Path, seeds: range) -> None:
    for seed in seeds:
        store = damaged_copy(pristine, folder / str(seed), random.Random(seed))
        assert_restores_what_was_saved(store, None, pristine)
        shutil.rmtree(folder / str(seed))


def run_in_both(pristine: CheckpointStore, folder: Path, bucket: RunBucket, seeds: range) -> None:
    """Damage an object of each seed in the bucket, and in every other case also the folder; in the rest it is lost."""
    upload_all(pristine, bucket)
    names = sorted(one.name for one in bucket.objects("step-"))
    for seed in seeds:
        source = random.Random(seed)
        name = source.choice(names)
        content = bucket.read(name).data
        bucket.write(name, damage(content, source))
        store = damaged_copy(pristine, folder / str(seed), source) if seed % 2 else local_store(folder / str(seed))
        assert_restores_what_was_saved(store, RemoteTier(bucket), pristine)
        bucket.write(name, content)
        shutil.rmtree(folder / str(seed), ignore_errors=True)


def test_damage_here_never_gives_wrong_weights(pristine: CheckpointStore, tmp_path: Path) -> None:
    run_here(pristine, tmp_path, range(20))


def test_damage_in_the_bucket_never_gives_wrong_weights(
    pristine: CheckpointStore, tmp_path: Path, bucket: RunBucket
) -> None:
    run_in_both(pristine, tmp_path, bucket, range(12))


@pytest.mark.long
def test_200_damages_here_never_give_wrong_weights(pristine: CheckpointStore, tmp_path: Path) -> None:
    run_here(pristine, tmp_path, range(1000, 1200))


@pytest.mark.long
def test_200_damages_in_the_bucket_never_give_wrong_weights(
    pristine: CheckpointStore, tmp_path: Path, bucket: RunBucket
) -> None:
    run_in_both(pristine, tmp_path, bucket, range(1000, 1200))


def test_damage_is_damage(pristine: CheckpointStore) -> None:
    """Else the tests above would prove nothing."""
    source, data = random.Random(0), (pristine.path(20) / "model.safetensors").read_bytes()
    assert all(damage(data, source) != data for _ in range(50))
