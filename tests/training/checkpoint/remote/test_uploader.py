"""The thread that copies checkpoints: newest first, one at a time, through failures of the store."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from observability.runlog import CheckpointUploaded, CheckpointUploadFailed, Event, Notice, select
from tests.engines.s3_faults import FaultyS3, Request
from tests.training.checkpoint.parts import IDENTITY
from tests.training.checkpoint.remote.parts import failing, nothing, puts, upload_all
from training.checkpoint.manifest import Manifest
from training.checkpoint.remote import uploader as uploads
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.lease import LeaseLostError
from training.checkpoint.remote.tier import RemoteCheckpoint, RemoteTier
from training.checkpoint.remote.uploader import Uploader
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore, bytes_writer, folder_name, local_store

SECONDS = 60
KEEP = Retention(keep_last=2, keep_best=1, higher_is_better=True)


def commit(store: CheckpointStore, *steps: int, metric: float | None = None) -> CheckpointStore:
    """Commit checkpoints of one small file; returns the store."""
    for step in steps:
        content = f"weights of step {step}".encode()
        files = {"model.safetensors": bytes_writer(content)}
        store.commit(step=step, identity=IDENTITY, metric=metric, files=files, expected_bytes=0)
    return store


@contextmanager
def uploading(
    store: CheckpointStore,
    bucket: RunBucket,
    *,
    start_step: int = 0,
    confirm: Callable[[], None] = nothing,
    beside: Callable[[], dict[str, Path]] = dict,
) -> Iterator[Uploader]:
    """An uploader that repeats at once what has failed."""
    uploader = start_uploader(
        RemoteTier(bucket), store, start_step=start_step, confirm=confirm, beside=beside, cancel=bucket.cancel
    )
    try:
        yield uploader
    finally:
        uploader.close()


def start_uploader(
    tier: RemoteTier | Folders,
    store: CheckpointStore,
    *,
    start_step: int,
    confirm: Callable[[], None] = nothing,
    beside: Callable[[], dict[str, Path]] = dict,
    cancel: Callable[[], None] = nothing,
) -> Uploader:
    return Uploader(
        cast("RemoteTier", tier),
        store,
        beside=beside,
        retention=KEEP,
        start_step=start_step,
        confirm=confirm,
        cancel=cancel,
        first_retry=0.01,
    )


def settled(uploader: Uploader) -> list[Event]:
    assert uploader.wait(SECONDS)
    return uploader.poll()


def steps_in(bucket: RunBucket) -> list[int]:
    return [one.step for one in RemoteTier(bucket).checkpoints()]


class Gate:
    """Holds the first write of an object until it is opened."""

    def __init__(self, name: str) -> None:
        self._is_it = puts(name)
        self.reached, self._opened = threading.Event(), threading.Event()

    def __call__(self, request: Request) -> None:
        if self._is_it(request) and not self.reached.is_set():
            self.reached.set()
            self._opened.wait(SECONDS)

    def open(self) -> None:
        self._opened.set()


def test_what_the_folder_has_and_the_bucket_lacks_is_copied_newest_first(tmp_path: Path, bucket: RunBucket) -> None:
    store = commit(local_store(tmp_path), 10, metric=0.9)
    commit(store, 20, 30)
    with uploading(store, bucket) as uploader:
        uploaded = select(settled(uploader), CheckpointUploaded)
    assert [event.step for event in uploaded] == [30, 10, 20]
    assert steps_in(bucket) == [10, 20, 30]
    assert uploaded[0].bytes == store.manifests()[-1].total_bytes


def test_a_newer_one_replaces_those_that_wait(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    store, gate = local_store(tmp_path), Gate("model.safetensors")
    proxy.fault = gate
    commit(store, 10)
    with uploading(store, bucket) as uploader:
        assert gate.reached.wait(SECONDS)
        transfer = uploader.transfer
        for step in (20, 30, 40, 50):
            commit(store, step)
            store.keep_only({step - 10, step})
            uploader.notify()
        assert 10 in store.steps()  # it is being read
        gate.open()
        uploaded = select(settled(uploader), CheckpointUploaded)
    assert transfer is not None
    assert transfer.step == 10
    assert [event.step for event in uploaded] == [10, 50, 40]
    assert steps_in(bucket) == [40, 50]


def test_the_bucket_keeps_the_newest_and_the_best(tmp_path: Path, bucket: RunBucket) -> None:
    store = local_store(tmp_path)
    with uploading(store, bucket) as uploader:
        for step, metric in ((10, 0.5), (20, 0.9), (30, 0.6), (40, 0.7), (50, None)):
            commit(store, step, metric=metric)
            uploader.notify()
            settled(uploader)
    assert steps_in(bucket) == [20, 40, 50]


def test_later_steps_of_another_history_go_with_the_next_copy(tmp_path: Path, bucket: RunBucket) -> None:
    upload_all(commit(local_store(tmp_path / "earlier"), 10, 20, 30), bucket)
    store = commit(local_store(tmp_path / "now"), 10, 15)
    with uploading(store, bucket, start_step=10) as uploader:
        settled(uploader)
    assert steps_in(bucket) == [10, 15]


def test_a_store_that_fails_is_one_warning_until_it_recovers(
    tmp_path: Path, bucket: RunBucket, proxy: FaultyS3
) -> None:
    store = commit(local_store(tmp_path), 10)
    with uploading(store, bucket) as uploader:
        settled(uploader)
        proxy.fault = failing(503, times=4, when=puts("model.safetensors"))
        commit(store, 20)
        uploader.notify()
        events: list[Event] = []
        while not select(events, CheckpointUploaded):
            uploader.wait(0.01)
            events += uploader.poll()
    notices = select(events, Notice)
    assert [notice.level for notice in notices] == ["warning", "info"]
    assert "SlowDown" in notices[0].message
    assert "the newest there is " in notices[0].message
    assert "takes checkpoints again" in notices[1].message
    failures = select(events, CheckpointUploadFailed)
    assert len(failures) == proxy.failed == 4, "the warning is one for all of them"
    assert {failure.location for failure in failures} == {bucket.location.url}
    assert all("SlowDown" in failure.reason for failure in failures)
    assert steps_in(bucket) == [10, 20]


def test_the_end_of_a_run_waits_for_three_attempts_only(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    proxy.fault = failing(403)
    store = commit(local_store(tmp_path), 10)
    with uploading(store, bucket) as uploader:
        uploader.finish()
        assert uploader.wait(SECONDS)
        assert "AccessDenied" in select(uploader.poll(), Notice)[0].message


def test_a_writer_whose_lease_is_lost_copies_nothing_more(tmp_path: Path, bucket: RunBucket) -> None:
    def confirm() -> None:
        raise LeaseLostError("leased to ada")

    store = commit(local_store(tmp_path), 10)
    with uploading(store, bucket, confirm=confirm) as uploader:
        events = settled(uploader)
    (notice,), (failure,) = select(events, Notice), select(events, CheckpointUploadFailed)
    assert (notice.level, failure.reason) == ("error", "leased to ada")
    assert notice.message == "leased to ada: no more checkpoints are copied there"
    assert bucket.objects() == []


def test_a_damaged_checkpoint_never_replaces_a_good_one(tmp_path: Path, bucket: RunBucket) -> None:
    store = commit(local_store(tmp_path), 10, 20)
    (store.path(20) / "model.safetensors").write_bytes(b"another length")
    with uploading(store, bucket) as uploader:
        events = settled(uploader)
    assert [event.step for event in select(events, CheckpointUploaded)] == [10]
    assert f"{folder_name(20)} is not copied" in select(events, Notice)[0].message
    assert [event.reason for event in select(events, CheckpointUploadFailed)] == [select(events, Notice)[0].message]


def test_an_upload_ends_with_the_run_that_fails(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    gate = Gate("model.safetensors")
    proxy.fault = gate
    store = commit(local_store(tmp_path), 10)
    with uploading(store, bucket) as uploader:
        assert gate.reached.wait(SECONDS)
        threading.Timer(0.2, gate.open).start()
    assert uploader.poll() == []
    assert steps_in(bucket) == []


def test_a_request_that_is_not_answered_does_not_delay_the_end(
    tmp_path: Path, bucket: RunBucket, proxy: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_CLOSE_SECONDS", 0.2)
    store = commit(local_store(tmp_path), 10)
    proxy.fault = lambda _request: "hang"
    with uploading(store, bucket):
        while not proxy.failed:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 10  # and not the 20 s of the request's timeout


def test_other_files_are_copied_before_the_first_checkpoint(tmp_path: Path, bucket: RunBucket, proxy: FaultyS3) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("one")
    store = local_store(tmp_path / "checkpoints")
    with uploading(store, bucket, beside=lambda: {"run/settings.yaml": file}) as uploader:
        for step, text in ((10, "one"), (20, "one"), (30, "two")):
            file.write_text(text)
            commit(store, step)
            uploader.notify()
            settled(uploader)
    writes = [one.path.rpartition("/")[2] for one in proxy.requests if one.method == "PUT"]
    assert writes.count("settings.yaml") == 2
    assert writes[0] == "settings.yaml"
    assert bucket.read("run/settings.yaml").data == b"two"


def test_a_run_that_resumes_does_not_copy_again_what_is_there(
    tmp_path: Path, bucket: RunBucket, proxy: FaultyS3
) -> None:
    store = commit(local_store(tmp_path), 10, 20)
    upload_all(store, bucket)
    proxy.requests.clear()
    with uploading(store, bucket, start_step=20) as uploader:
        assert settled(uploader) == []
    assert not [one for one in proxy.requests if one.method == "PUT"]


def test_checkpoints_of_one_step_are_told_apart_by_their_manifests(tmp_path: Path, bucket: RunBucket) -> None:
    upload_all(commit(local_store(tmp_path / "before"), 10), bucket)
    now = commit(local_store(tmp_path / "now"), 10, metric=0.5)
    with uploading(now, bucket) as uploader:
        assert [event.step for event in select(settled(uploader), CheckpointUploaded)] == [10]
    assert RemoteTier(bucket).checkpoints()[0].manifest.metric == 0.5


def test_a_checkpoint_that_is_among_the_best_here_and_not_in_the_bucket_is_not_copied(
    tmp_path: Path, bucket: RunBucket
) -> None:
    """A run goes on from its bucket on an empty machine, which has fetched the newest checkpoint and not the best one."""
    earlier = commit(commit(local_store(tmp_path / "earlier"), 10, metric=0.9), 20, metric=0.5)
    upload_all(earlier, bucket)
    now = commit(commit(local_store(tmp_path / "now"), 30, metric=0.8), 40, 50, metric=0.6)
    with uploading(now, bucket, start_step=20) as uploader:
        assert [event.step for event in select(settled(uploader), CheckpointUploaded)] == [50, 40]
    assert steps_in(bucket) == [10, 40, 50]


class Folders:
    """The checkpoints of a bucket as folders, a double for many histories: who keeps what depends on no request."""

    url = "memory://bucket"

    def __init__(self, root: Path) -> None:
        self.store = local_store(root)
        self.damaged: set[int] = set()
        self.uploads: list[int] = []

    def checkpoints(self) -> list[RemoteCheckpoint]:
        return [
            RemoteCheckpoint(manifest=one, problems=("a file is missing",) if one.step in self.damaged else ())
            for one in self.store.manifests()
        ]

    def upload(self, manifest: Manifest, folder: Path, **others: object) -> None:
        del others
        copy_checkpoint(folder, self.store)
        self.damaged.discard(manifest.step)
        self.uploads.append(manifest.step)

    def keep_only(self, steps: Collection[int]) -> None:
        self.store.keep_only(steps)

    def remove_unfinished(self) -> None:
        """Nothing is."""


def copy_checkpoint(folder: Path, store: CheckpointStore) -> None:
    target = store.path(int(folder.name.removeprefix("step-")))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)


MOMENTS = st.one_of(
    st.tuples(st.just("commit"), st.none() | st.sampled_from([0.1, 0.5, 0.9, float("nan")])),
    st.tuples(st.sampled_from(["lose", "damage", "empty machine", "restart"]), st.integers(0, 2)),
)


BEGINNINGS = st.sampled_from([[], [("commit", 0.9), ("commit", 0.1), ("empty machine", 0)]])
"""With the second one the bucket has a better checkpoint than the run's folder."""


@settings(max_examples=60)
@given(moments=st.builds(list.__add__, BEGINNINGS, st.lists(MOMENTS, min_size=1, max_size=12)))
def test_whatever_happens_a_bucket_soon_has_the_newest_and_the_best(
    tmp_path_factory: pytest.TempPathFactory, moments: list[tuple[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("history")
    there, here, start = Folders(root / "bucket"), local_store(root / "0"), 0
    uploader = start_uploader(there, here, start_step=start)
    try:
        for number, (what, value) in enumerate(moments, start=1):
            step = max([start, *here.steps(), *there.store.steps()]) + 10
            if what == "commit":
                commit(here, step, metric=value)
                here.keep_only(KEEP.retained({one.step: one.metric for one in here.manifests()}))
            elif what in ("lose", "damage"):
                chosen = there.store.steps()[value : value + 1]
                there.keep_only(set(there.store.steps()) - set(chosen if what == "lose" else []))
                there.damaged.update(chosen if what == "damage" else [])
            else:
                uploader.close()
                if what == "empty machine":
                    good = [one.step for one in there.checkpoints() if not one.problems][-1:]
                    here = local_store(root / str(number))
                    for one in good:
                        copy_checkpoint(there.store.path(one), here)
                start = max(here.steps(), default=0)
                uploader = start_uploader(there, here, start_step=start)
            there.uploads.clear()
            uploader.notify()
            settled(uploader)
            assert len(there.uploads) == len(set(there.uploads)) <= len(here.steps())
    finally:
        uploader.close()
    if what == "commit":
        known = {one.step: one.metric for one in [*there.store.manifests(), *here.manifests()]}
        assert set(there.store.steps()) == KEEP.retained(known) & set(there.store.steps()) | {step}
