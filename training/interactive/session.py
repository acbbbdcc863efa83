"""The program of a session: it runs as the session's job, and the cluster ends with it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from infra.spec.errors import RefusedError
from observability.quantities import duration
from training.errors import ExitStatus
from training.interactive.cost import describe_cost
from training.interactive.idle import Activity, IdleClock
from training.options.sessions import SessionOptions

_POLL_SECONDS = 5.0


class Cluster(Protocol):
    """What a session is about."""

    def observe(self) -> Activity:
        """What somebody does on it now; raises ConnectionError if it does not answer."""


def run(options: SessionOptions) -> ExitStatus:
    """Keep the session's cluster until nobody uses it or its time is over, and print its cost."""
    from training.interactive.activity import RayCluster  # noqa: PLC0415 - imports Ray

    _interrupt_on_sigterm()
    try:
        cluster = RayCluster(options.address)
    except ConnectionError as error:
        raise RefusedError(
            f"no Ray cluster answers at {options.address}",
            remedy="make cluster ENV=… starts a session; its job runs this",
        ) from error
    return keep(cluster, options, sleep=time.sleep)


def keep(cluster: Cluster, options: SessionOptions, *, sleep: Callable[[float], None]) -> ExitStatus:
    """Wait for the end of a session.

    A cluster that does not answer counts as used: it may be busy, and the time limit ends it.

    Args:
        cluster: the cluster.
        options: limits and size.
        sleep: waits some seconds.
    """
    started = time.monotonic()
    clock = IdleClock(idle_seconds=options.idle_minutes * 60, longest_seconds=options.hours * 3600, started=started)
    reason, was_used = None, False
    print(f"session started; it ends after {duration(options.idle_minutes * 60)} without use", flush=True)
    try:
        while reason is None:
            sleep(min(_POLL_SECONDS, options.idle_minutes * 60 / 4))
            activity = _observe(cluster)
            reason = clock.observe(activity, now=time.monotonic())
            if bool(activity.running) != was_used:
                was_used = bool(activity.running)
                print(f"in use: {activity.running}" if was_used else "nothing runs", flush=True)
    except KeyboardInterrupt:
        reason = "it was stopped"
    seconds = time.monotonic() - started
    print(f"session ended: {reason}; {describe_cost(seconds, gpus=options.gpus, usd_per_hour=options.usd_per_hour)}")
    return ExitStatus.INTERRUPTED if reason == "it was stopped" else ExitStatus.DONE


def _observe(cluster: Cluster) -> Activity:
    try:
        return cluster.observe()
    except ConnectionError as error:
        print(f"warning: Ray does not answer: {error}", flush=True)
        return Activity(running="Ray does not answer")


def _interrupt_on_sigterm() -> None:
    """`ray job stop` sends SIGTERM."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
