"""Follows a job of a Ray cluster to its end, as `training.cluster.follow` does one on Kubernetes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

from infra.kube.errors import ConnectionLostError
from infra.spec.errors import PlatformError
from infra.spec.signals import handling, interrupt
from training.cluster.state import JobState
from training.cluster.view import HEADLINES, JobView
from training.errors import ExitStatus
from training.vms.connection import HeadConnection
from training.vms.jobs import JobLog, RayJob, RayJobs

_POLL_SECONDS = 2.0
_TICK_SECONDS = 0.1
_LONGEST_WAIT = 30.0
_LAST_LINES_SECONDS = 10.0
_WORDS = {**HEADLINES, "starting": "starting the driver on the head"}


def follow_to_exit(
    jobs: RayJobs, connection: HeadConnection, job: RayJob, *, hints: str, stop_on_interrupt: bool
) -> int:
    """Follow a job to its end, and return its exit status.

    Args:
        jobs: the jobs of its cluster.
        connection: to the head; opened again when it breaks.
        job: the job.
        hints: commands on the job, printed when it is left.
        stop_on_interrupt: Ctrl-C stops the job; otherwise it keeps running.
    """
    view = JobView(sys.stdout, is_terminal=sys.stdout.isatty(), headlines=_WORDS)
    log = JobLog(jobs.client, job.id)
    log.start()
    with handling([signal.SIGTERM], interrupt):  # CI sends it to cancel a command
        try:
            try:
                state = _follow(jobs, connection, job, log, view)
            except KeyboardInterrupt:
                if not stop_on_interrupt:
                    raise
                jobs.stop(job)
                view.say(f"job {job.run} is saving its state and stopping; Ctrl-C again returns without waiting")
                state = _follow(jobs, connection, job, log, view)
        except KeyboardInterrupt:
            view.close()
            view.say(f"job {job.run} keeps running\n{hints}", tone="warning")
            return ExitStatus.INTERRUPTED
        finally:
            view.close()
    assert state.status is not None, "the state is over"
    return state.status


def _follow(jobs: RayJobs, connection: HeadConnection, job: RayJob, log: JobLog, view: JobView) -> JobState:
    for state in _states(jobs, connection, job, log, view):
        if state.is_over:
            for line in log.finish(seconds=_LAST_LINES_SECONDS):
                view.log(line)
            view.state(state)
            return state
        view.state(state)
    raise AssertionError("states end with the loop only")


def _states(jobs: RayJobs, connection: HeadConnection, job: RayJob, log: JobLog, view: JobView) -> Iterator[JobState]:
    """Poll forever, and show the log's lines between two polls."""
    wait, lost_since = _POLL_SECONDS, None
    while True:
        try:
            if lost_since is not None:
                connection.open()
            state = jobs.read(job.id).state
        except PlatformError as error:
            if not isinstance(error, ConnectionLostError) and lost_since is None:
                raise
            if lost_since is None:
                lost_since = time.monotonic()
                view.say(f"connection lost, the job keeps running; retrying: {error.args[0]}", tone="warning")
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if lost_since is not None:
                view.say(f"reconnected after {time.monotonic() - lost_since:.0f} s")
            wait, lost_since = _POLL_SECONDS, None
            yield state
        end = time.monotonic() + wait
        while time.monotonic() < end:
            for line in log.take():
                view.log(line)
            view.tick()
            time.sleep(_TICK_SECONDS)
