"""Follows a job to its end: polls its state, prints changes, reconnects, and handles Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.manifest import Manifest
from infra.spec.signals import handling, interrupt
from training.cluster import control
from training.cluster.context import ClusterContext
from training.cluster.driver_log import DriverLog
from training.cluster.job_manifest import describe_size
from training.cluster.state import JobState, Observation, next_state
from training.cluster.view import JobView
from training.cluster.watch import JobWatch, watch_of
from training.errors import ExitStatus

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POLL_SECONDS = 2.0
_TICK_SECONDS = 0.1
_LONGEST_WAIT = 30.0
_LAST_LINES_SECONDS = 10.0


def follow_to_exit(api: KubernetesApi, context: ClusterContext, job: Manifest, *, stop_on_interrupt: bool) -> int:
    """Follow a job to its end, and return its exit status.

    On an interrupt the job keeps running, or stops with `stop_on_interrupt`.
    """
    name = job["metadata"]["name"]
    watch = watch_of(api, context, name)
    view = JobView(sys.stdout, is_terminal=sys.stdout.isatty())
    log = DriverLog(api, watch)
    log.start()
    with handling([signal.SIGTERM], interrupt):  # CI sends it to cancel a command
        try:
            try:
                state = follow(watch, log, view)
            except KeyboardInterrupt:
                if not stop_on_interrupt:
                    raise
                control.stop(api, job)
                view.say(f"job {name} is saving its state and stopping; Ctrl-C again returns without waiting")
                state = follow(watch, log, view)
        except KeyboardInterrupt:
            _say_what_goes_on(view, context, job)
            return ExitStatus.INTERRUPTED
        finally:
            view.close()
    if state.remedy:
        print(f"  remedy: {state.remedy}")
    assert state.status is not None, "follow returns a state that is over"
    return state.status


def follow_to_start(api: KubernetesApi, context: ClusterContext, job: Manifest) -> JobState | None:
    """Follow a job until its driver runs or it is over, and return that state; None after an interrupt."""
    watch = watch_of(api, context, job["metadata"]["name"])
    view = JobView(sys.stdout, is_terminal=sys.stdout.isatty())
    with handling([signal.SIGTERM], interrupt):
        try:
            return follow(watch, None, view, until=lambda state: state.stage == "running")
        except KeyboardInterrupt:
            _say_what_goes_on(view, context, job)
            return None
        finally:
            view.close()


def follow(
    watch: JobWatch, log: DriverLog | None, view: JobView, *, until: Callable[[JobState], bool] = lambda _: False
) -> JobState:
    """Show a job until its state is over.

    Only reads: the job does not depend on this process or its connection.

    Args:
        watch: reads the job's state.
        log: the driver's log, started; None shows only the states.
        view: where to show it.
        until: a state at which to return earlier.

    Returns:
        the last state; if it is over, its status mirrors the job's.

    Raises:
        ApiError: the API server denies reading the job.
    """
    state: JobState | None = None
    for seen in _observations(watch, log, view):
        state = next_state(state, seen)
        if state.is_over or until(state):
            break
        view.state(state)
    assert state is not None, "observations end with the loop only"
    if log is not None and state.is_over:
        for line in log.finish(seconds=_LAST_LINES_SECONDS):
            view.log(line)
    view.state(state)
    return state


def _observations(watch: JobWatch, log: DriverLog | None, view: JobView) -> Iterator[Observation]:
    """Poll forever, and show the log's lines between two polls."""
    wait, lost_since = _POLL_SECONDS, None
    while True:
        try:
            seen = watch.observe()
        except (ConnectionLostError, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_transient:
                raise
            if lost_since is None:
                lost_since = time.monotonic()
                view.say(f"connection lost, the job keeps running; retrying: {error.args[0]}", tone="warning")
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if lost_since is not None:
                view.say(f"reconnected after {time.monotonic() - lost_since:.0f} s")
            wait, lost_since = _POLL_SECONDS, None
            yield seen
        _show_log(log, view, seconds=wait)


def _show_log(log: DriverLog | None, view: JobView, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for line in () if log is None else log.take():
            view.log(line)
        view.tick()
        time.sleep(_TICK_SECONDS)


def _say_what_goes_on(view: JobView, context: ClusterContext, job: Manifest) -> None:
    name = job["metadata"]["name"]
    holds = (
        "stays in the queue and holds no GPUs" if view.stage == "queued" else f"keeps running ({describe_size(job)})"
    )
    view.close()
    view.say(
        f"job {name} {holds}\n  follow it: {context.hint('logs', name)}\n  stop it:   {context.hint('stop', name)}",
        tone="warning",
    )
