"""A real Prometheus with the stack's rules and intervals, and what it says about itself."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psutil
from prometheus_client.parser import text_string_to_metric_families

from infra.spec.cluster_names import NODE_PRICES, TEAM_BUDGETS
from infra.spec.errors import PlatformError
from infra.spec.manifest_yaml import write_document
from observability.alerts.catalog import GROUPS
from observability.alerts.model import Group
from observability.benchmarks.fleet.server import Served
from observability.benchmarks.fleet.shape import GPU_GROUP, GPU_TYPE
from training.local_port import local_port
from training.local_server import HOST, running

EVALUATION_SECONDS = 30
"""How often rules are evaluated: Prometheus Operator's default, which the stack does not change."""

_GIVEN: Mapping[str, tuple[float, Mapping[str, str]]] = {
    NODE_PRICES: (32.0, {"group": GPU_GROUP, "instance_type": GPU_TYPE}),
    TEAM_BUDGETS: (1e6, {"team": "team-0"}),
}
"""Values and labels of what a stack records from its settings."""

_TIMEOUT_SECONDS = 120.0
_END_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What Prometheus has done so far.

    Attributes:
        seconds: monotonic time.
        resident, anonymous: bytes of its process in memory; anonymous is what no file backs.
        cpu_seconds: CPU time.
        series: in memory (the head).
        samples: stored since the start.
        groups: seconds of the newest evaluation of each group of rules.
        missed: evaluations that did not take place because the one before took too long.
        failed: rules whose evaluation failed.
    """

    seconds: float
    resident: int
    anonymous: int
    cpu_seconds: float
    series: int
    samples: int
    groups: dict[str, float]
    missed: int
    failed: int


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str
    pid: int

    def moment(self) -> Moment:
        """Its state now.

        Raises:
            OSError: it has ended, or does not answer.
        """
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - loopback
            text: str = answer.read().decode()
        sums: dict[str, float] = {}
        groups: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
                if sample.name == "prometheus_rule_group_last_duration_seconds":
                    groups[sample.labels["rule_group"].rpartition(";")[2]] = sample.value
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return Moment(
            seconds=time.monotonic(),
            resident=_kilobytes(status["VmRSS"]),
            anonymous=_kilobytes(status.get("RssAnon", status["VmRSS"])),
            cpu_seconds=sums["process_cpu_seconds_total"],
            series=int(sums["prometheus_tsdb_head_series"]),
            samples=int(sums.get("prometheus_tsdb_head_samples_appended_total", 0)),
            groups=groups,
            missed=int(sums.get("prometheus_rule_group_iterations_missed_total", 0)),
            failed=int(sums.get("prometheus_rule_evaluation_failures_total", 0)),
        )

    def sums(self, expression: str, label: str) -> dict[str, float]:
        """Values of an instant query by the values of a label."""
        address = f"{self.url}/api/v1/query?{urlencode({'query': expression})}"
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - loopback
            found = json.load(answer)["data"]["result"]
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in found}


def write_configuration(
    served: Sequence[Served], folder: Path, *, address: str, interval_seconds: float | None = None
) -> Path:
    """Write configuration and rules into a folder; returns the configuration's file.

    Args:
        served: scrape configurations.
        folder: for both files.
        address: at which Prometheus scrapes itself.
        interval_seconds: between scrapes and evaluations of rules, in place of the stack's intervals.
    """
    rules = folder / "rules.yml"
    rules.write_text(write_document({"groups": list(map(_group, GROUPS))}), encoding="utf-8")

    def duration(seconds: int) -> str:
        return f"{seconds}s" if interval_seconds is None else f"{int(1000 * interval_seconds)}ms"

    own = {"job": "kube-prometheus-stack-prometheus", "namespace": "monitoring", "service": "prometheus"}
    interval = duration(EVALUATION_SECONDS)
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": _shorter(interval), "evaluation_interval": interval},
        "rule_files": [str(rules.resolve())],
        "scrape_configs": [
            {"job_name": "Prometheus", "static_configs": [{"targets": [address], "labels": own}]},
            *(
                {
                    "job_name": one.name,
                    "honor_labels": one.honor_labels,
                    "scrape_interval": duration(one.seconds),
                    "scrape_timeout": _shorter(duration(one.seconds)),
                    "file_sd_configs": [{"files": [str(one.file.resolve())]}],
                }
                for one in served
            ),
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(write_document(configuration), encoding="utf-8")
    return file


def _group(group: Group) -> Mapping[str, object]:
    """The group as the stack delivers it: with what it records from its settings first."""
    given: list[Mapping[str, object]] = []
    for one in group.given:
        value, labels = _GIVEN[one.name]
        given.append({"record": one.name, "expr": f"vector({value})", "labels": labels})
    return {"name": group.name, "rules": [*given, *(rule.manifest() for rule in group.rules)]}


@contextmanager
def recording(
    program: Path, served: Sequence[Served], folder: Path, *, interval_seconds: float | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus on loopback, with its data in `folder`.

    Raises:
        PlatformError: it did not start, ended, or does not answer; the message has the end of its log.
    """
    address = f"{HOST}:{local_port(0, usual=0)}"
    configuration = write_configuration(served, folder, address=address, interval_seconds=interval_seconds)
    log = folder / "prometheus.log"
    command = [
        str(program),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    try:
        with running(command, ready_url=f"http://{address}/-/ready", log=log) as process:
            yield from _explaining(process, Prometheus(f"http://{address}", process.pid))
    except PlatformError as error:
        raise PlatformError(f"{error}:\n{log.read_text()[-3000:]}") from error


def _explaining(process: subprocess.Popen[bytes], server: Prometheus) -> Iterator[Prometheus]:
    """The server; says why it does not answer, if it does not."""
    try:
        yield server
    except OSError as error:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        status = process.returncode
        said = f"does not answer: {error}" if status is None else f"ended with status {status}"
        raise PlatformError(f"Prometheus {said}") from error


def version_of(program: Path) -> str:
    """The version that the program prints, e.g. 3.14.0."""
    ended = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (ended.stdout + ended.stderr).split()[2]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _shorter(interval: str) -> str:
    """The time-out of a scrape: 10 s, Prometheus's default, or the interval if that is shorter."""
    return interval if interval.endswith("ms") else "10s"


def _kilobytes(text: str) -> int:
    return int(text.split(maxsplit=1)[0]) * 1024
