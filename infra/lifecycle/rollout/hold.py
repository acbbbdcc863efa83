"""Keeps jobs off the nodes while a command replaces them: hold the queues, wait until the nodes are empty, release."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.repeating import repeating
from infra.lifecycle.rollout.jobs import RunningJob, running_jobs
from infra.lifecycle.rollout.queues import (
    HoldMode,
    held_queues,
    hold_queues,
    holds_of_updates,
    release_queues,
    renew_holds,
    stopped_queues,
)
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.signals import ENDINGS, interrupting

_POLL_SECONDS = 2.0
_REPORT_SECONDS = 60.0
_RENEWAL_SECONDS = 10.0
"""How often an update that runs renews its holds."""

_RELEASE_SECONDS = 60.0
"""How long a release is retried while the API server or Kueue's webhook does not answer, as during their update."""

Say = Callable[[str], None]


@contextmanager
def holding(
    api: KubernetesApi,
    mode: HoldMode,
    *,
    env: str,
    say: Say,
    seconds: float,
    groups: frozenset[str] | None = None,
    teams: frozenset[str] = frozenset(),
) -> Iterator[None]:
    """Hold the queues and wait until the nodes are empty; release the queues at the end, whatever happens in between.

    Those of an update that was killed are held again, and released with the others; those that a user holds stay held. Those of an
    update that still waits or runs refuse this one: its end would release them.

    Args:
        api: the API server, as an administrator.
        mode: wait for jobs that run, or evict them: they save, and resume by themselves after the release.
        env: name of the environment, for messages.
        say: prints a line.
        seconds: how long to wait for the nodes.
        groups: node groups to wait for; None waits for all.
        teams: teams to wait for, wherever their jobs are.

    Raises:
        RefusedError: nodes are not empty in time, and the queues are released; or another update holds them.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    if others := holds_in_use(api):
        raise RefusedError(
            f"nothing was changed: another update of {env}, which still runs, holds the queues {', '.join(others)}",
            remedy="wait until it ends, or end it with Ctrl-C, then repeat the command",
        )
    with interrupting(ENDINGS):
        try:
            hold_queues(api, mode, by_update=True)
            # So that no other update takes the holds for those of one that was killed.
            with repeating(lambda: renew_holds(api), seconds=_RENEWAL_SECONDS):
                await_empty(api, mode, say=say, seconds=seconds, groups=groups, teams=teams)
                yield
        finally:
            release_surely(api, env=env, say=say)


def holds_in_use(api: KubernetesApi) -> tuple[str, ...]:
    """Names of the queues that an update holds which still runs; looks for long enough to see two renewals.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    before, deadline = holds_of_updates(api), time.monotonic() + 3 * _RENEWAL_SECONDS
    while before and time.monotonic() < deadline:
        now = holds_of_updates(api)
        if renewed := tuple(name for name, when in now.items() if before.get(name) not in {None, when}):
            return renewed
        time.sleep(min(_POLL_SECONDS, _RENEWAL_SECONDS))
    return ()


def await_empty(
    api: KubernetesApi,
    mode: HoldMode,
    *,
    say: Say,
    seconds: float,
    groups: frozenset[str] | None = None,
    teams: frozenset[str] = frozenset(),
) -> None:
    """Wait until no pod of a job is on the nodes of these groups, or on any node, or of these teams.

    Prints the jobs that are left when they change, and every minute. A wait of hours outlasts lost connections.

    Raises:
        RefusedError: some are left after `seconds`; names them.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    deadline, reported, before = time.monotonic() + seconds, 0.0, frozenset[tuple[str, str]]()
    while left := _running_jobs(api, groups, teams, deadline=deadline, say=say):
        now = time.monotonic()
        if now > deadline:
            raise _not_empty(left, mode, seconds)
        names = frozenset((one.namespace, one.name) for one in left)
        if names != before or now - reported > _REPORT_SECONDS:
            say(f"waiting for {_counted(left)}, {round(deadline - now)} s at most:{_lines(left)}")
            before, reported = names, now
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - now)))


def _running_jobs(
    api: KubernetesApi, groups: frozenset[str] | None, teams: frozenset[str], *, deadline: float, say: Say
) -> tuple[RunningJob, ...]:
    """The running jobs, as soon as the API server says which they are."""
    is_told = False
    while True:
        try:
            return running_jobs(api, groups=groups, teams=teams)
        except (ConnectionLostError, ApiError) as error:
            if not _may_pass(error) or time.monotonic() > deadline:
                raise
            if not is_told:
                say(f"retrying: {error.args[0]}")
                is_told = True
        time.sleep(_POLL_SECONDS)


def _may_pass(error: PlatformError) -> bool:
    """Whether another try may succeed, as after a lost connection or while Kueue's webhook restarts."""
    return isinstance(error, ConnectionLostError) or (isinstance(error, ApiError) and error.is_transient)


def release_surely(api: KubernetesApi, *, env: str, say: Say, seconds: float = _RELEASE_SECONDS) -> None:
    """Release the queues that an update holds; if that fails, say that they are still held and how to release them."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            released = release_queues(api, by_update=True)
        except PlatformError as error:
            if not _may_pass(error) or time.monotonic() > deadline:
                say(_still_held(env, error))
                return
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt as error:
            say(_still_held(env, error))
            raise
        else:
            if released:
                say(f"queues released: {', '.join(released)}")
            return


def say_held(api: KubernetesApi, *, env: str, say: Say) -> None:
    """Say which queues are held, by a user or since an update was killed.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    if held := held_queues(api):
        say(
            f"warning: queues {', '.join(held)} are held, so no job starts; release them: make release-queues ENV={env}"
        )
    say_stopped(api, say=say)


def say_stopped(api: KubernetesApi, *, say: Say) -> None:
    """Say which queues somebody has stopped by hand, and how to open them.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for name, policy in stopped_queues(api).items():
        patch = '{"spec":{"stopPolicy":"None"}}'
        say(
            f"warning: somebody has set the stop policy of queue {name} to {policy}, so no job starts in it, and no command of ours "
            f"changes that; open it: kubectl patch clusterqueue {name} --type merge -p '{patch}'"
        )


def _still_held(env: str, error: BaseException) -> str:
    why = error.args[0] if error.args else "interrupted"
    return f"warning: the queues of {env} may still be held, so no job starts: {why}\n  release them: make release-queues ENV={env}"


def _not_empty(left: tuple[RunningJob, ...], mode: HoldMode, seconds: float) -> RefusedError:
    drain = (
        ", or let the jobs save and resume afterwards: JOBS=drain, or DRAIN=1 of `make hold`" if mode == "Hold" else ""
    )
    return RefusedError(
        f"still running after {seconds:.0f} s: {_counted(left)}{_lines(left)}", remedy=f"wait longer: HOURS=…{drain}"
    )


def _counted(jobs: tuple[RunningJob, ...]) -> str:
    return f"{len(jobs)} job{'s' * (len(jobs) != 1)}"


def _lines(jobs: tuple[RunningJob, ...]) -> str:
    return "".join(f"\n  {job}" for job in jobs)
