"""Jobs on the job server of a Ray head: a run is a job whose driver is on the head."""

from __future__ import annotations

import asyncio
import logging
import queue
import shlex
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.job_submission import JobStatus, JobSubmissionClient
from requests.exceptions import RequestException

from infra.kube.errors import ConnectionLostError
from infra.spec.errors import RefusedError
from training.cluster.objects import one_line
from training.cluster.state import JobState
from training.code.archive import CodeArchive
from training.environment import RUN_ARGUMENTS_VARIABLE
from training.errors import ExitStatus, SettingsError
from training.vms.place import CODE_FILE, SETTINGS_FILE, RunPlace, entrypoint

RUN = "ray-train-platform/run"
"""Key of a job's metadata: its run. The job's ID has a time in addition, because Ray never gives an ID away again."""

_TALKATIVE = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
"""Loggers of Ray's that report each upload and connection."""

_LONGEST_REASON = 400
_UNKNOWN = "does not exist"
"""In Ray's answer about a job that it does not know (dashboard/modules/job/job_head.py)."""

_RECONNECT_SECONDS = 1.0
_MIRRORED = {int(status): status for status in ExitStatus if status is not ExitStatus.DONE}


@dataclass(frozen=True, kw_only=True)
class RayJob:
    """A job.

    Attributes:
        id: Ray's submission ID.
        run: its run, empty if this platform did not submit it.
        state: where it stands.
        began: Unix time of its submission.
    """

    id: str
    run: str
    state: JobState
    began: float


class RayJobs:
    """The jobs of a cluster."""

    def __init__(self, url: str) -> None:
        """Connect.

        Raises:
            RefusedError: the server denies it, e.g. because the token differs.
        """
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            self.client = JobSubmissionClient(url)
        except (RuntimeError, ConnectionError) as error:
            raise RefusedError(
                f"the job server refuses the connection: {one_line(str(error), longest=_LONGEST_REASON)}",
                remedy="run ray up on the file again, which copies its token to the head",
            ) from error

    def submit(
        self, run: str, settings_yaml: str, archive: CodeArchive | None, place: RunPlace, *, arguments: str
    ) -> RayJob:
        """Submit a run; its settings and code travel as the job's working directory.

        Args:
            run: its name.
            settings_yaml: its settings.
            archive: code of the user's own; None without.
            place: where runs are.
            arguments: what names the run for `make`, which its messages say.

        Raises:
            RefusedError: a job of the run has not ended.
        """
        command = entrypoint(place.python, place.checkout, has_code=archive is not None)
        return self._submit(run, command, _files(archive, {SETTINGS_FILE: settings_yaml.encode()}), arguments)

    def resume(
        self, run: str, changes: Sequence[str], archive: CodeArchive | None, place: RunPlace, *, arguments: str
    ) -> RayJob:
        """Submit a run again, with the settings in its folder and changes of them, `a.b=c`; otherwise as `submit`."""
        resumes = shlex.join([run, "--root", place.runs, *(part for change in changes for part in ("--set", change))])
        command = entrypoint(place.python, place.checkout, has_code=archive is not None, resumes=resumes)
        return self._submit(run, command, _files(archive, {}), arguments)

    def _submit(self, run: str, command: str, files: Mapping[str, bytes], arguments: str) -> RayJob:
        earlier = next((job for job in self.all() if job.run == run and not job.state.is_over), None)
        if earlier is not None:
            raise RefusedError(
                f"run {run} is {earlier.state.stage} in job {earlier.id}", remedy="follow it, or choose another NAME=…"
            )
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            submitted = self.client.submit_job(
                entrypoint=command,
                submission_id=f"{run}-{int(time.time())}",
                runtime_env={
                    **({"working_dir": folder} if files else {}),
                    "env_vars": {RUN_ARGUMENTS_VARIABLE: arguments},
                },
                metadata={RUN: run},
            )
        return self.read(submitted)

    def stop(self, job: RayJob) -> None:
        """Have the driver save its state and end; does not wait."""
        self.client.stop_job(job.id)

    def read(self, job_id: str) -> RayJob:
        """A job as it is now; one that the head does not know is deleted: a new head knows none.

        Raises:
            ConnectionLostError: the server does not answer.
        """
        try:
            return _job_of(_answer(lambda: self.client.get_job_info(job_id)))
        except ConnectionLostError as error:
            if _UNKNOWN not in error.args[0]:
                raise
        reason = "the head does not know the job; it was started anew"
        return RayJob(
            id=job_id, run="", state=JobState(stage="deleted", reason=reason, status=ExitStatus.FAILED), began=0
        )

    def all(self) -> list[RayJob]:
        """Every job, newest first.

        Raises:
            ConnectionLostError: the server does not answer.
        """
        found = _answer(self.client.list_jobs)
        return sorted((_job_of(one) for one in found if one.submission_id), key=lambda job: job.began, reverse=True)

    def named(self, run: str | None) -> RayJob:
        """The newest job of a run, or the newest of all.

        Raises:
            SettingsError: there is none.
        """
        known = [job for job in self.all() if job.run]
        found = next((job for job in known if run in {None, job.run, job.id}), None)
        if found is None:
            listed = ", ".join(dict.fromkeys(job.run for job in known)) or "none yet"
            raise SettingsError(
                f"the cluster has no job{'' if run is None else f' of run {run}'}", remedy=f"its runs: {listed}"
            )
        return found


def _files(archive: CodeArchive | None, others: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a job's working directory."""
    return {**others, **({} if archive is None else {CODE_FILE: archive.data})}


def _answer(ask: Any) -> Any:  # noqa: ANN401 - Ray's client has no types
    try:
        return ask()
    except (RequestException, ConnectionError, RuntimeError) as error:
        raise ConnectionLostError(one_line(str(error), longest=_LONGEST_REASON)) from error


def _job_of(info: Any) -> RayJob:  # noqa: ANN401 - as above
    return RayJob(
        id=str(info.submission_id),
        run=str((info.metadata or {}).get(RUN, "")),
        state=state_of(info.status, message=str(info.message or ""), exit_code=info.driver_exit_code),
        began=(info.start_time or 0) / 1000,
    )


def state_of(status: str, *, message: str = "", exit_code: int | None = None) -> JobState:
    """A job's state, with the exit status of its driver if it failed.

    Args:
        status: Ray's `JobStatus`.
        message: Ray's.
        exit_code: of the driver's process.
    """
    if status == JobStatus.PENDING:
        return JobState(stage="starting")
    if status == JobStatus.RUNNING:
        return JobState(stage="running")
    if status == JobStatus.SUCCEEDED:
        return JobState(stage="done", status=ExitStatus.DONE)
    if status == JobStatus.STOPPED or exit_code == ExitStatus.INTERRUPTED:
        return JobState(stage="stopped", reason="the run saved its state and stopped", status=ExitStatus.INTERRUPTED)
    if exit_code is None:
        reason = one_line(message, longest=_LONGEST_REASON)
        return JobState(stage="failed", reason=reason, status=ExitStatus.FAILED)
    mirrored = _MIRRORED.get(exit_code, ExitStatus.FAILED)
    return JobState(stage="failed", reason=f"the driver exited with code {exit_code}", status=mirrored)


class JobLog:
    """The lines of a driver as they come, complete also if the connection breaks: Ray sends a log from its beginning each time."""

    def __init__(
        self, client: JobSubmissionClient, job_id: str, *, reconnect_seconds: float = _RECONNECT_SECONDS
    ) -> None:
        """`reconnect_seconds` pass between two connections."""
        self._client, self._job_id, self._reconnect_seconds = client, job_id, reconnect_seconds
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._characters, self._partial = 0, ""
        self._is_over, self._has_all = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read, name="driver-log", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def take(self) -> Iterator[str]:
        """The lines that have come since the last call."""
        while True:
            try:
                yield self._lines.get_nowait()
            except queue.Empty:
                return

    def finish(self, *, seconds: float) -> Iterator[str]:
        """The remaining lines, once the job is over; waits up to `seconds` for the last one."""
        self._is_over.set()
        self._has_all.wait(seconds)
        yield from self.take()

    def _read(self) -> None:
        while True:
            was_over = self._is_over.is_set()
            try:
                asyncio.run(self._tail())
            except Exception:  # noqa: BLE001 - of Ray's client and of aiohttp; the next connection resumes
                if was_over:
                    break
                self._is_over.wait(self._reconnect_seconds)
            else:
                break
        if self._partial:
            self._lines.put(self._partial)
        self._has_all.set()

    async def _tail(self) -> None:
        passed = 0
        async for chunk in self._client.tail_job_logs(self._job_id):
            new = chunk[max(0, self._characters - passed) :]
            passed += len(chunk)
            self._characters = max(self._characters, passed)
            *lines, self._partial = (self._partial + new).split("\n")
            for line in lines:
                self._lines.put(line)
