"""Checkpoints in a bucket: whole or absent, verified when they come back, never wrong weights for random damage, and pruned."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.engines.s3_faults import FaultyS3, Request
from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same
from tests.training.checkpoint.remote.parts import PART, connect, failing, ignore, nothing, puts, saved, upload_all
from training.checkpoint.remote.bucket import RemoteStoreError, RunBucket
from training.checkpoint.remote.newest import newest_good
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.store import CheckpointStore, bytes_writer, local_store
from training.errors import CheckpointError, ResumeMismatchError


def large_store(folder: Path) -> CheckpointStore:
    """A checkpoint whose model takes three parts."""
    store = local_store(folder)
    files = {"model.safetensors": random.Random(10).randbytes(2 * PART + 7), "state.json": b"{}"}
    store.commit(
        step=10,
        identity=IDENTITY,
        metric=None,
        files={name: bytes_writer(data) for name, data in files.items()},
        expected_bytes=0,
    )
    return store


def patience(what: int | str) -> float:
    """Seconds to wait for an answer: few where none comes."""
    return 1.0 if what == "hang" else 20.0


def test_a_checkpoint_comes_back_byte_for_byte(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    here = large_store(tmp_path / "here")
    tier = upload_all(here, bucket)
    there = local_store(tmp_path / "there")
    (found,) = tier.checkpoints()
    assert tier.fetch(found, there) == []
    files = {file.name: file.read_bytes() for file in here.path(10).iterdir()}
    assert {file.name: file.read_bytes() for file in there.path(10).iterdir()} == files
    assert sum("partNumber=" in one.query for one in proxy.requests if one.method == "PUT") == 3


def test_the_manifest_is_written_last_and_removed_first(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    tier = upload_all(saved(tmp_path, 10), bucket)
    writes = [one.path.rpartition("/")[2] for one in proxy.requests if one.method == "PUT"]
    assert writes[-1] == "manifest.json"
    proxy.requests.clear()
    tier.keep_only([])
    removals = [one.path.rpartition("/")[2] for one in proxy.requests if one.method == "DELETE"]
    assert removals[0] == "manifest.json"
    assert bucket.objects() == []


def test_an_upload_that_ends_early_is_no_checkpoint(tmp_path: Path, remote: str, proxy: FaultyS3) -> None:
    store = large_store(tmp_path)
    for what, name in ((500, "model.safetensors"), ("cut", "model.safetensors"), ("hang", "manifest.json")):
        bucket, is_it = connect(remote, read_seconds=patience(what)), puts(name)
        proxy.fault = failing(what, when=lambda one, is_it=is_it: is_it(one) and "partNumber=1" not in one.query)  # type: ignore[misc]
        with pytest.raises(RemoteStoreError):
            upload_all(store, bucket)
        proxy.fault = failing(what, times=0)
        tier = RemoteTier(bucket)
        assert tier.checkpoints() == []
        tier.remove_unfinished()
        assert bucket.objects() == []
        assert bucket.abort_uploads() == 0


def test_a_request_that_fails_once_is_repeated(tmp_path: Path, remote: str, proxy: FaultyS3) -> None:
    store = large_store(tmp_path)
    faults: tuple[int | str, ...] = (500, "cut", "hang")
    for number, what in enumerate(faults, 1):
        bucket = connect(remote, attempts=3, read_seconds=patience(what))
        proxy.fault = failing(what, times=1, when=puts("model.safetensors"))
        tier = upload_all(store, bucket)
        assert proxy.failed == number
        assert [one.step for one in tier.checkpoints()] == [10]
        assert tier.verify(tier.checkpoints()[0], tmp_path) == []


def test_parts_that_a_killed_upload_has_left_are_given_up(bucket: RunBucket) -> None:
    bucket._client.create_multipart_upload(Bucket=bucket.location.bucket, Key=bucket.location.key("step-00000001/x"))
    assert bucket.abort_uploads() == 1
    assert bucket.abort_uploads() == 0


def test_a_step_that_is_uploaded_again_replaces_the_older_one(tmp_path: Path, bucket: RunBucket) -> None:
    upload_all(large_store(tmp_path / "old"), bucket)
    new = saved(tmp_path / "new", 10)
    tier = upload_all(new, bucket)
    (found,) = tier.checkpoints()
    assert (found.manifest, found.problems) == (new.manifests()[0], ())
    assert len(bucket.objects()) == len(found.manifest.files) + 1


def test_a_lost_folder_is_restored_from_the_bucket(tmp_path: Path, bucket: RunBucket) -> None:
    here = saved(tmp_path / "here", 10, 20)
    tier = upload_all(here, bucket)
    lines: list[str] = []
    found = newest_good(local_store(tmp_path / "there"), tier, IDENTITY, report=lines.append)
    assert found is not None
    assert found.progress.step == 20
    run, original = SmallRun(seed=1), SmallRun(seed=2)
    run.load(found)
    original.load(here.open(20, IDENTITY))
    assert_same(run.tensors(), original.tensors())
    assert "step-00000020 was copied to the run's folder" in lines[0]


def test_what_is_damaged_here_is_taken_from_the_bucket(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    here = saved(tmp_path, 10, 20)
    tier = upload_all(here, bucket)
    proxy.requests.clear()
    found = newest_good(here, tier, IDENTITY, report=pytest.fail)
    assert found is not None
    assert not [one for one in proxy.requests if one.path.endswith(".safetensors")]
    (here.path(20) / "model.safetensors").write_bytes(b"")
    lines: list[str] = []
    found = newest_good(here, tier, IDENTITY, report=lines.append)
    assert found is not None
    assert (found.progress.step, found.skipped) == (20, ())
    assert lines[0].startswith("warning: step-00000020: model.safetensors has 0 bytes")


def test_a_newest_checkpoint_that_is_damaged_in_the_bucket_is_skipped(tmp_path: Path, bucket: RunBucket) -> None:
    tier = upload_all(saved(tmp_path / "here", 10, 20), bucket)
    content = bytearray(bucket.read("step-00000020/model.safetensors").data)
    content[-1] ^= 1
    bucket.write("step-00000020/model.safetensors", bytes(content))
    lines: list[str] = []
    there = local_store(tmp_path / "there")
    found = newest_good(there, tier, IDENTITY, report=lines.append)
    assert found is not None
    assert found.progress.step == 10
    assert "step-00000020 is not used: model.safetensors does not match its sha256" in lines[0]
    assert there.folder_steps() == [10]


def test_what_is_damaged_on_the_way_is_downloaded_again(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    tier = upload_all(saved(tmp_path / "here", 10), bucket)
    damaged: list[Request] = []

    def change(request: Request, body: bytes) -> bytes:
        if request.method != "GET" or not request.path.endswith("optimizer.safetensors") or damaged:
            return body
        damaged.append(request)
        return bytes([body[0] ^ 1]) + body[1:]

    proxy.change = change
    assert newest_good(local_store(tmp_path / "there"), tier, IDENTITY, report=lambda _line: None) is not None
    assert len(damaged) == 1


def test_another_run_s_checkpoint_is_not_downloaded(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    tier = upload_all(saved(tmp_path / "here", 10), bucket)
    proxy.requests.clear()
    other = IDENTITY.__class__(**{**vars(IDENTITY), "seed": 7})
    with pytest.raises(
        ResumeMismatchError, match=r"s3://.*/run/step-00000010 belongs to another run: seed: saved 0, wanted 7"
    ):
        newest_good(local_store(tmp_path / "there"), tier, other, report=pytest.fail)
    assert not [one for one in proxy.requests if one.path.endswith(".safetensors")]


def test_a_bucket_that_does_not_answer_is_a_warning_or_error(
    tmp_path: Path, bucket: RunBucket, proxy: FaultyS3
) -> None:
    proxy.fault = failing(503)
    lines: list[str] = []
    found = newest_good(saved(tmp_path / "here", 10), RemoteTier(bucket), IDENTITY, report=lines.append)
    assert found is not None
    assert lines[0].startswith("warning: ")
    with pytest.raises(CheckpointError, match="whether its bucket has one is not known"):
        newest_good(local_store(tmp_path / "there"), RemoteTier(bucket), IDENTITY, report=pytest.fail)


def test_the_step_of_a_lost_lease_is_not_committed(tmp_path: Path, bucket: RunBucket) -> None:
    store = saved(tmp_path, 10)
    calls = iter([None, RuntimeError("taken over")])

    def confirm() -> None:
        if (error := next(calls)) is not None:
            raise error

    with pytest.raises(RuntimeError, match="taken over"):
        RemoteTier(bucket).upload(store.manifests()[0], store.path(10), confirm=confirm, on_bytes=ignore)
    assert RemoteTier(bucket).checkpoints() == []
    RemoteTier(bucket).upload(store.manifests()[0], store.path(10), confirm=nothing, on_bytes=ignore)
    assert [one.step for one in RemoteTier(bucket).checkpoints()] == [10]


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
