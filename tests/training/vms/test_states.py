"""What a job's status means, and that its log is complete although its connection breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.vms.clusters import aws_file, own_file
from training.config.load import load_settings
from training.config.schema import TrainingSettings
from training.errors import SettingsError
from training.vms.jobs import JobLog, state_of
from training.vms.place import METADATA_KEY, RunPlace
from training.vms.settings import for_machines

_NOW = datetime(2026, 11, 27, tzinfo=UTC)


def test_a_job_ends_with_the_status_of_its_driver() -> None:
    for status, exit_code, expected in (
        ("PENDING", None, ("starting", None)),
        ("RUNNING", None, ("running", None)),
        ("SUCCEEDED", 0, ("done", 0)),
        ("STOPPED", None, ("stopped", 130)),
        ("FAILED", 1, ("failed", 1)),
        ("FAILED", 130, ("stopped", 130)),
        ("FAILED", -9, ("failed", 1)),
        ("FAILED", None, ("failed", 1)),
    ):
        state = state_of(status, message="no room", exit_code=exit_code)
        assert (state.stage, state.status) == expected, (status, exit_code)


class _Breaking:
    """A job server whose connections break after some chunks; like Ray's, it sends the log from its beginning each time."""

    def __init__(self, chunks: list[str], breaks: list[int]) -> None:
        self._chunks, self._breaks = chunks, breaks

    async def tail_job_logs(self, _: str) -> AsyncIterator[str]:
        sent = self._breaks.pop(0) if self._breaks else len(self._chunks)
        for chunk in self._chunks[:sent]:
            yield chunk
        if sent < len(self._chunks):
            raise RuntimeError("the connection broke")


@given(
    chunks=st.lists(st.text(alphabet="ab\n", max_size=8), max_size=6), breaks=st.lists(st.integers(0, 6), max_size=2)
)
def test_a_log_has_every_line_once_wherever_its_connection_breaks(chunks: list[str], breaks: list[int]) -> None:
    client: Any = _Breaking(chunks, breaks)
    log = JobLog(client, "job", reconnect_seconds=0.0)
    log.start()
    log._thread.join(10)
    text = "".join(chunks)
    assert list(log.take()) == (text.removesuffix("\n").split("\n") if text else [])


def _place(document: dict[str, Any]) -> RunPlace:
    return RunPlace.model_validate(document["metadata"][METADATA_KEY])


def _settings(*overrides: str) -> TrainingSettings:
    return load_settings(["digits"], overrides=list(overrides), environment={})


def test_a_run_in_ec2_has_the_folders_and_the_bucket_of_its_file_unless_the_user_sets_others() -> None:
    place = _place(aws_file())
    settings = for_machines(_settings("run.name=first"), place, now=_NOW)
    assert (settings.run.name, str(settings.run.directory)) == ("first", "/mnt/runs")
    bucket = (place.checkpoint_remote, place.checkpoint_owner)
    assert (settings.checkpoint.remote, settings.checkpoint.remote_owner) == bucket
    assert (settings.scale.address, settings.tracking.uri) == ("auto", place.tracking_uri)
    written = _settings("checkpoint.remote=null", "tracking.uri=https://mlflow.example.org")
    settings = for_machines(written, place, now=_NOW)
    assert (settings.checkpoint.remote, settings.tracking.uri) == (None, "https://mlflow.example.org")


def test_a_dataset_that_the_machines_do_not_have_is_refused() -> None:
    for document, path, named in (
        (aws_file(), "/data/photos", "/mnt/datasets or /mnt/runs"),
        (own_file(), "photos", "an absolute path"),
        (own_file(), "s3://corpus/photos", "data.cache=/scratch"),
    ):
        with pytest.raises(SettingsError, match=named):
            for_machines(_settings("data.dataset=image_folder", f"data.path={path}"), _place(document), now=_NOW)
    written = _settings("data.dataset=image_folder", "data.path=/nfs/photos")
    assert str(for_machines(written, _place(own_file()), now=_NOW).data.path) == "/nfs/photos"
