"""Follows the suite's job to its end: what it reports, when it was admitted, and why it did not end well."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest
from training.cluster.context import ClusterContext
from training.cluster.driver_log import DriverLog
from training.cluster.follow import follow
from training.cluster.node_room import room_by_group
from training.cluster.objects import has_condition
from training.cluster.state import JobState, Observation
from training.cluster.view import JobView, describe
from training.cluster.watch import JobWatch
from training.conformance.facts import JobReport

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_GONE_SECONDS = 180.0
"""How long the API server may be silent: an update of EKS's control plane takes seconds, and a job may end meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long the job may take, in seconds.

    Attributes:
        admission: in the queue.
        end: in all.
    """

    admission: float
    end: float


@dataclass(kw_only=True)
class JobEnd:
    """What is known of the job when it is no longer followed.

    Attributes:
        state: its last state; None if it was never read.
        workload: its Workload as it was when it was admitted, else as it was last; None if there was none.
        report: what its program has reported.
        trouble: which limit it exceeded, or why it could not be followed, in words; empty if neither.
    """

    state: JobState | None
    workload: Manifest | None
    report: JobReport
    trouble: str = ""

    @property
    def why(self) -> str:
        """Why parts of the report are missing, in one line."""
        seen = () if self.state is None else (self.state.stage, describe(self.state))
        return ": ".join(part for part in (self.trouble, *seen) if part)


class ReportView(JobView):
    """Shows the states of the job and what its program prints, and keeps the reports in it."""

    def __init__(self, stream: TextIO, *, is_terminal: bool) -> None:
        super().__init__(stream, is_terminal=is_terminal)
        self.report = JobReport()

    def log(self, line: str) -> None:
        """Keep a report; show any other line."""
        if not self.report.take(line):
            super().log(line)


class _AdmissionWatch(JobWatch):
    """Observes the job, keeps its Workload, and gives up on an API server that stays silent."""

    workload: Manifest | None = None
    _silent_since: float | None = None

    def observe(self) -> Observation:
        """Read the objects of the job.

        Raises:
            RefusedError: the API server has not answered for minutes.
            ConnectionLostError: it does not answer.
            ApiError: it refuses the request.
        """
        try:
            seen = super().observe()
        except (ConnectionLostError, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_transient:
                raise
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() - self._silent_since > _GONE_SECONDS:
                message = f"the API server has been silent for {_GONE_SECONDS:.0f} s: {error.args[0]}"
                raise RefusedError(message) from error
            raise
        self._silent_since = None
        was_admitted = self.workload is not None and has_condition(self.workload, "Admitted")
        if seen.workload is not None and not was_admitted:
            self.workload = seen.workload
        return seen


@dataclass(kw_only=True)
class _Clock:
    """Compares the time that the job has taken with its limits."""

    limits: Limits
    start: float = field(default_factory=time.monotonic)
    overdue: str = ""

    def is_over(self, state: JobState, *, is_queued: bool) -> bool:
        """Whether the job has exceeded a limit; one that Kueue has not seen is queued, too."""
        taken = time.monotonic() - self.start
        if is_queued and not state.is_over and taken > self.limits.admission:
            self.overdue = f"not admitted within {self.limits.admission / 60:g} minutes"
        elif taken > self.limits.end:
            self.overdue = f"not ended within {self.limits.end / 60:g} minutes"
        return bool(self.overdue)


def follow_job(
    api: KubernetesApi, context: ClusterContext, job: Manifest, *, limits: Limits, only_admission: bool
) -> JobEnd:
    """Follow the job to its end, to a limit, to its admission, or until that is no longer possible.

    Args:
        api: the cluster.
        context: stack and team.
        job: the RayJob.
        limits: how long it may take.
        only_admission: return once it is admitted, because its pods will not run.
    """
    watch = _AdmissionWatch(
        api, namespace=context.team.namespace, name=job["metadata"]["name"], rooms=room_by_group(context.target)
    )
    view = ReportView(sys.stdout, is_terminal=sys.stdout.isatty())
    log = DriverLog(api, watch)
    log.start()
    clock, seen, lost = _Clock(limits=limits), list[JobState](), ""

    def is_enough(state: JobState) -> bool:
        seen.append(state)
        is_queued = state.stage == "queued" or watch.workload is None
        return clock.is_over(state, is_queued=is_queued) or (only_admission and not is_queued)

    try:
        seen.append(follow(watch, log, view, until=is_enough))
    except PlatformError as error:  # what the job has reported until then holds
        lost = str(error.args[0])
    finally:
        log.stop()
        view.close()
    return JobEnd(
        state=seen[-1] if seen else None,
        workload=watch.workload,
        report=view.report,
        trouble=lost or clock.overdue,
    )
