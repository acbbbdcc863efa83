"""A bucket that a run cannot use is refused before anything starts, with the setting, the rule and the remedy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from observability.runlog import Notice, read_all, select
from tests.engines.ports import free_port
from tests.engines.s3 import S3Api
from tests.engines.s3_faults import FaultyS3
from tests.training.checkpoint.parts import IDENTITY
from tests.training.checkpoint.remote.parts import connect, failing, upload_all
from tests.training.runs import small_settings
from training.checkpoint.remote.driving import check_bucket, leased
from training.checkpoint.store import bytes_writer, local_store
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, PlatformError, PreflightError, ResumeMismatchError
from training.rundir import RunDirectory


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
    store = local_store(tmp_path)
    files = {"model.safetensors": bytes_writer(b"")}
    store.commit(step=10, identity=IDENTITY, metric=None, files=files, expected_bytes=0)
    upload_all(store, connect(remote))
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
        deadline = time.monotonic() + 60
        while not run.stop_is_requested() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert run.stop_is_requested()
    (notice,) = select(read_all(run.path), Notice)
    assert "no longer leased to this run but to nobody" in notice.message
