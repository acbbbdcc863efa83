"""The result of a fleet benchmark in words, as a record and as a plot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from infra.spec.monitoring_size import memory_gib_for, series_of_a_node
from observability.benchmarks.fleet.measure import Result
from observability.benchmarks.fleet.plot import draw
from observability.benchmarks.fleet.prometheus import EVALUATION_SECONDS
from observability.benchmarks.fleet.shape import Fleet
from observability.benchmarks.measure import describe_machine

_GROUPS = 5


def request_bytes(fleet: Fleet) -> int:
    """Memory that the stack gives Prometheus for such nodes."""
    series = len(fleet.cpu_nodes) * series_of_a_node(vcpus=fleet.vcpus, gpus=0)
    series += len(fleet.gpu_nodes) * series_of_a_node(vcpus=fleet.vcpus, gpus=fleet.gpus)
    return memory_gib_for(series) * 2**30


def report(result: Result, request: int) -> Iterator[str]:
    """The result in words, line by line; `request` is the memory in bytes that the stack gives Prometheus."""
    yield f"Prometheus {result.version}, {result.targets:,} targets, {result.failing} of them failing"
    yield "| exporter (job) | series |"
    yield "| --- | --- |"
    for job, series in sorted(result.series_by_job.items(), key=lambda item: -item[1]):
        yield f"| {job} | {series:,.0f} |"
    last = result.moments[-1]
    yield (
        f"series in memory {result.series:,}, {result.samples_per_second:,.0f} samples/s stored of "
        f"{result.expected_per_second:,.0f} that the targets have"
    )
    if not result.kept_up:
        yield "PROMETHEUS DID NOT KEEP UP: the machine is too small or too busy, and these figures are those of an overload"
    yield f"CPU {result.cpu:.2f} cores; the simulated exporters {result.server_cpu:.2f} cores"
    yield (
        f"memory at most {result.peak / 2**30:.2f} GiB, {result.peak / result.series:,.0f} bytes a series; the stack requests "
        f"{request / 2**30:.0f} GiB: {'enough' if result.peak <= request else 'too little'}"
    )
    yield f"rules: {last.missed} evaluations missed, {last.failed} failed; interval {EVALUATION_SECONDS} s; slowest groups:"
    for name, (median, longest) in list(result.slowest_groups().items())[:_GROUPS]:
        yield f"  {name}: median {median:.3f} s, longest {longest:.3f} s"
    found = ", ".join(f"{name} ({number:.0f})" for name, number in sorted(result.alerts.items()))
    yield f"alerts pending or firing: {found or 'none'}"


def write(result: Result, request: int, file: Path) -> None:
    """Write the record into a JSON file, and the plot next to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": describe_machine(), "request_bytes": request, **result.dump()}
    file.write_text(json.dumps(record, indent=2), encoding="utf-8")
    draw(result, file.with_suffix(".png"), request_bytes=request)
