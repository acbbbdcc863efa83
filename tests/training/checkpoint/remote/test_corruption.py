"""Random damage to a run's checkpoints, here and in the bucket: never wrong weights, never an error that only a programmer understands."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same
from tests.training.checkpoint.remote.parts import saved, upload_all
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.newest import newest_good
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.store import CheckpointStore, local_store
from training.errors import CheckpointError

STEPS = (10, 20)


def damage(data: bytes, source: random.Random) -> bytes:
    """Change one byte, or cut the end off."""
    place = source.randrange(len(data))
    is_flipped = source.random() < 0.5
    return data[:place] + (bytes([data[place] ^ source.randrange(1, 256)]) + data[place + 1 :] if is_flipped else b"")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> CheckpointStore:
    """Checkpoints of two steps."""
    return saved(tmp_path_factory.mktemp("pristine"), *STEPS)


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
    run, saved_one = SmallRun(seed=1), SmallRun(seed=3)
    run.load(found)
    saved_one.load(pristine.open(found.progress.step, IDENTITY))
    assert_same(run.tensors(), saved_one.tensors())


def damaged_copy(pristine: CheckpointStore, folder: Path, source: random.Random) -> CheckpointStore:
    """A copy of which one file of each step, or of one step, is damaged."""
    store = local_store(folder)
    for step in STEPS:
        shutil.copytree(pristine.path(step), store.path(step))
    for step in source.choice([STEPS, STEPS[-1:]]):
        file = source.choice(sorted(store.path(step).iterdir()))
        file.write_bytes(damage(file.read_bytes(), source))
    return store


def test_damage_here_never_gives_wrong_weights(pristine: CheckpointStore, tmp_path: Path) -> None:
    for seed in range(20):
        store = damaged_copy(pristine, tmp_path / str(seed), random.Random(seed))
        assert_restores_what_was_saved(store, None, pristine)


def test_damage_in_the_bucket_gives_no_wrong_one(pristine: CheckpointStore, tmp_path: Path, bucket: RunBucket) -> None:
    """An object of each seed is damaged, and in every other case also the folder; in the rest it is lost."""
    upload_all(pristine, bucket)
    names = sorted(one.name for one in bucket.objects("step-"))
    for seed in range(12):
        source, folder = random.Random(seed), tmp_path / str(seed)
        name = source.choice(names)
        content = bucket.read(name).data
        bucket.write(name, damage(content, source))
        store = damaged_copy(pristine, folder, source) if seed % 2 else local_store(folder)
        assert_restores_what_was_saved(store, RemoteTier(bucket), pristine)
        bucket.write(name, content)
