"""One writer at a time: who holds the lease, who takes it over, and a bucket that a run cannot use is refused before anything starts."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from observability.runlog import Notice, read_all, select
from tests.engines.ports import free_port
from tests.engines.s3 import S3Api
from tests.engines.s3_faults import FaultyS3
from tests.training.checkpoint.remote.parts import connect, failing, saved, upload_all
from tests.training.runs import small_settings
from tests.waiting import wait_until
from training.checkpoint.remote import lease as leases
from training.checkpoint.remote.bucket import RunBucket, _age
from training.checkpoint.remote.driving import check_bucket, leased
from training.checkpoint.remote.lease import LEASE_OBJECT, Lease, LeaseLostError, Writer, confirm, held, writer_of
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, PlatformError, PreflightError, ResumeMismatchError
from training.rundir import RunDirectory

SECONDS = 60


def elsewhere(seconds: float = 60.0) -> Writer:
    """A writer on another machine, about which nothing can be told."""
    return replace(Writer.this_process(seconds=seconds), host="gpu-7", machine="other", user="ada", pid=4242)


def take(bucket: RunBucket, writer: Writer) -> Lease:
    lease = Lease(bucket, writer)
    lease.take(say=lambda _line: None, look_every=0.05)
    return lease


def test_a_writer_that_renews_its_lease_is_not_replaced_and_named(bucket: RunBucket) -> None:
    holder = take(bucket, elsewhere())
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(0.1):
            holder.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    said: list[str] = []
    try:
        with pytest.raises(PreflightError) as refused:
            Lease(bucket, Writer.this_process()).take(say=said.append, look_every=0.05)
    finally:
        is_over.set()
        thread.join()
    assert "is being written by process 4242 of ada on gpu-7, since 20" in str(refused.value)
    assert "holds until 20" in str(refused.value)
    assert "give this one another --name" in refused.value.remedy
    assert len(said) == 1


def test_a_lease_that_is_not_renewed_is_taken_over_once_it_expires(bucket: RunBucket) -> None:
    gone = take(bucket, elsewhere(seconds=1.0))
    ours = Writer.this_process()
    take(bucket, ours)
    confirm(bucket, ours.token)
    with pytest.raises(LeaseLostError, match=f"no longer leased to this run but to process {ours.pid}"):
        gone.renew()


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over_at_once(bucket: RunBucket) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead = replace(Writer.this_process(), pid=process.pid)
    assert dead.host == socket.gethostname()
    take(bucket, dead)
    take(bucket, Writer.this_process())  # a minute later otherwise, which the time-out of a test would not notice
    assert dead.is_gone()
    assert not Writer.this_process().is_gone()
    assert not elsewhere().is_gone()
    other_container = dead.machine.replace(str(Path("/proc/self/ns/pid").readlink()), "pid:[1]")
    assert not replace(dead, machine=other_container).is_gone(), "its process ids are not ours"
    assert other_container != dead.machine


@pytest.mark.parametrize(
    "date",
    [
        "Sun, 29 Nov 2026 12:00:30 GMT",
        "Sun, 29 Nov 2026 12:00:30 GMT, Sun, 29 Nov 2026 12:00:31 GMT",
    ],
)
def test_the_age_of_a_lease_is_by_the_store_s_first_date(date: str) -> None:
    written = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert _age({"LastModified": written, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}) == 30


@pytest.mark.parametrize("headers", [{}, {"date": "soon"}])
def test_without_a_date_of_the_store_the_age_is_by_this_machine_s_clock(headers: dict[str, str]) -> None:
    written = datetime.now(UTC) - timedelta(seconds=90)
    assert 90 <= _age({"LastModified": written, "ResponseMetadata": {"HTTPHeaders": headers}}) < 150


def test_of_writers_that_start_together_one_gets_the_lease(bucket: RunBucket) -> None:
    writers = [replace(elsewhere(), token=f"{number:032x}") for number in range(4)]
    started = threading.Barrier(len(writers))

    def compete(writer: Writer) -> bool:
        started.wait()
        return Lease(bucket, writer)._write(replaces=None)

    with ThreadPoolExecutor(len(writers)) as pool:
        won = list(pool.map(compete, writers))
    (winner,) = (writer for writer, has_won in zip(writers, won, strict=True) if has_won)
    confirm(bucket, winner.token)


def test_a_lease_is_held_while_the_block_runs_and_is_then_free(bucket: RunBucket, tmp_path: Path) -> None:
    with held(bucket, tmp_path, say=pytest.fail, on_lost=pytest.fail, renewed_every=0.05):
        token = writer_of(tmp_path)
        assert token is not None
        first = bucket.read(LEASE_OBJECT).etag
        while bucket.read(LEASE_OBJECT).etag == first:
            confirm(bucket, token)
    assert bucket.objects() == []
    assert writer_of(tmp_path) is None


def test_a_writer_that_has_lost_its_lease_is_told_and_leaves_it(bucket: RunBucket, tmp_path: Path) -> None:
    lost = threading.Event()
    other = elsewhere()
    with held(bucket, tmp_path, say=pytest.fail, on_lost=lambda _reason: lost.set(), renewed_every=0.05):
        bucket.remove(LEASE_OBJECT)
        Lease(bucket, other)._write(replaces=None)
        assert lost.wait(SECONDS)
        with pytest.raises(LeaseLostError, match="ada on gpu-7"):
            confirm(bucket, writer_of(tmp_path) or "")
    confirm(bucket, other.token)


def test_a_store_that_fails_for_a_while_costs_no_lease(bucket: RunBucket, tmp_path: Path, proxy: FaultyS3) -> None:
    with held(bucket, tmp_path, say=pytest.fail, on_lost=pytest.fail, renewed_every=0.02):
        proxy.fault = failing(503, times=5)
        while proxy.failed < 5:
            threading.Event().wait(0.01)
        confirm(bucket, writer_of(tmp_path) or "")


def test_a_store_that_does_not_answer_does_not_delay_the_end(
    bucket: RunBucket, tmp_path: Path, proxy: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_RELEASE_SECONDS", 0.2)
    with held(bucket, tmp_path, say=pytest.fail, on_lost=pytest.fail):
        proxy.fault = lambda _request: "hang"
        began = time.monotonic()
    assert time.monotonic() - began < 10  # and not the 20 s of the request's timeout
    assert writer_of(tmp_path) is None


def test_a_store_without_conditional_requests_is_read_again_after_each_write(remote: str, proxy: FaultyS3) -> None:
    proxy.fault = failing(501, when=lambda one: bool({"if-match", "if-none-match"} & one.headers.keys()))
    bucket = connect(remote)
    ours = Writer.this_process()
    lease = take(bucket, ours)
    lease.renew()
    confirm(bucket, ours.token)
    bucket.remove(LEASE_OBJECT)
    with pytest.raises(LeaseLostError, match="to nobody"):
        lease.renew()


def settings_with(remote: str, **checkpoint: object) -> TrainingSettings:
    return small_settings(run={"name": "run"}, checkpoint={"remote": remote, **checkpoint})


def refused(settings: TrainingSettings) -> PlatformError:
    with pytest.raises(PreflightError) as error:
        check_bucket(settings)
    assert error.value.status is ExitStatus.REFUSED
    return error.value


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def test_an_empty_bucket_is_accepted_and_left_as_it_was(remote: str, s3_api: S3Api) -> None:
    before = s3_api.object_names()
    assert check_bucket(settings_with(remote)) is False
    assert check_bucket(small_settings(checkpoint={"remote": remote})) is False
    assert s3_api.object_names() == before


def test_an_unusable_bucket_is_refused(remote: str, proxy: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused(settings_with("s3://no-such-bucket/team"))
    assert error.args[0] == "checkpoint.remote=s3://no-such-bucket/team: there is no bucket no-such-bucket"
    assert "checkpoint.remote=null" in error.remedy
    for method in ("GET", "PUT", "DELETE"):
        proxy.fault = failing(403, when=lambda one, method=method: one.method == method)  # type: ignore[misc]
        error = refused(settings_with(remote))
        assert f"checkpoint.remote={remote}: s3://" in error.args[0]
        assert "denies access to these credentials" in error.args[0], method
        assert "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject" in error.remedy
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    error = refused(settings_with(remote))
    assert "Could not connect to the endpoint URL" in error.args[0]
    assert "AWS_ENDPOINT_URL_S3" in error.remedy
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refused(settings_with(remote))
    assert "no valid AWS credentials: Unable to locate credentials" in error.args[0]
    assert "AWS_PROFILE" in error.remedy


def test_a_bucket_of_another_account_is_refused_by_the_account_that_was_given(remote: str, proxy: FaultyS3) -> None:
    # The test's S3 API knows no owners; S3 answers 403 if the header names another one than the bucket's.
    proxy.fault = failing(403, when=lambda one: one.headers.get("x-amz-expected-bucket-owner") == "111122223333")
    error = refused(settings_with(remote, remote_owner="111122223333"))
    assert "or it does not belong to account 111122223333" in error.args[0]
    assert "checkpoint.remote_owner" in error.remedy
    assert check_bucket(settings_with(remote, remote_owner="444455556666")) is False


def test_a_checkpoint_of_another_run_is_refused_by_its_differences(
    remote: str, proxy: FaultyS3, tmp_path: Path
) -> None:
    upload_all(saved(tmp_path, 10), connect(remote))
    with pytest.raises(ResumeMismatchError) as error:
        check_bucket(settings_with(remote))
    assert "/run/step-00000010 belongs to another run: model: saved mlp, wanted simple_cnn" in error.value.args[0]
    assert "another run.name" in error.value.remedy
    never = refused(settings_with(remote, resume="never"))
    assert "checkpoint.resume=never, but s3://" in never.args[0]
    assert "has a checkpoint of step 10" in never.args[0]


def test_a_driver_that_loses_its_lease_stops_its_run_and_says_why(remote: str, proxy: FaultyS3, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    with leased(settings_with(remote), run, say=pytest.fail, renewed_every=0.05):
        connect(remote).remove("lease.json")
        wait_until(run.stop_is_requested)
    (notice,) = select(read_all(run.path), Notice)
    assert "no longer leased to this run but to nobody" in notice.message
