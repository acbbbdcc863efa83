"""A run of the suite: what was checked where, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from training.cluster.conformance.check import Result, Verdict
from training.errors import ExitStatus


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run of the suite.

    Attributes:
        env: name of the environment.
        platform: version of the platform.
        cluster: name of the cluster.
        endpoint: of its API server.
        team: whose namespace was used.
        nodes: the job's nodes in words.
        job: name of the job.
        fakes: what stood in for hardware or services, in words; empty if nothing did.
        started: when it began.
        seconds: how long it took.
        results: of the checks.
    """

    env: str
    platform: str
    cluster: str
    endpoint: str
    team: str
    nodes: str
    job: str
    fakes: str
    started: datetime
    seconds: float
    results: Sequence[Result]

    def count(self, verdict: Verdict) -> int:
        """Number of checks with a verdict."""
        return sum(one.finding.verdict == verdict for one in self.results)

    @property
    def status(self) -> ExitStatus:
        """`FAILED` if a check failed."""
        return ExitStatus.FAILED if self.count("failed") else ExitStatus.DONE

    @property
    def title(self) -> str:
        """The counts in words, e.g. `21 passed, 1 failed, 2 skipped`."""
        return ", ".join(f"{self.count(one)} {one}" for one in ("passed", "failed", "skipped"))
