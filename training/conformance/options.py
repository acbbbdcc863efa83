"""Options of `conformance`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import option
from training.options.cluster import ClusterOptions


@dataclass(frozen=True, kw_only=True)
class ConformanceOptions(ClusterOptions):
    """Options of `conformance`."""

    env: str = option("environment of the stack", ...)
    group: str | None = option("GPU node group of the job (default: the cheapest with two nodes)")
    use_gpu: bool | None = option("a job with GPUs (default: where the stack has a group for it)")
    only: tuple[str, ...] = option(
        "checks to make, e.g. policy or training.resume; repeatable (default: all)", metavar="CHECK"
    )
    no_skips: bool = option("fail if a check is skipped", default=False)
    junit: Path | None = option("file for the results as JUnit's XML", metavar="FILE")
    html: Path | None = option("file of the page (default: .local/conformance/ENV/report.html)", metavar="FILE")
    prometheus: str | None = option("where the stack's Prometheus answers (default: a forwarded port)", metavar="URL")
    admission_minutes: float = option("time for the queue to admit the job", 30.0, metavar="M", at_least=0)
    minutes: float = option("time for the job in all", 90.0, metavar="M", at_least=0)
    keep: bool = option("keep the job after its end", default=False)
