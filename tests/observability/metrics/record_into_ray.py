"""Starts Ray, records a run and a search with its exporter, and saves what Ray's metrics agent serves.

It saves three pages: one with everything, one that is served several of the agent's patiences later, and one after the recorder
has been closed and the agent has dropped what it set once.

Usage: python -m tests.observability.metrics.record_into_ray RAY_FOLDER OUTPUT_FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import ray
from prometheus_client.parser import text_string_to_metric_families

from observability.metrics.ray import RayRecorder
from tests.engines.ports import free_port
from tests.observability.metrics.exported import page, record_everything

_SECONDS = 60.0
_PATIENCE_SECONDS = 2.0
"""How long the agent keeps a gauge that is not set again: two report intervals, which the environment sets to one second."""

_LAST_RECORDED = "ray_rtp_train_spool_backlog_bytes"


def main(folder: str, output: Path) -> None:
    """Record a run and a search, and save what the agent serves.

    Raises:
        TimeoutError: the agent did not serve or drop the metrics in time.
    """
    port = free_port()
    ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder, _metrics_export_port=port)
    url = f"http://127.0.0.1:{port}/metrics"
    recorder = RayRecorder(refresh_seconds=0.5)
    record_everything(recorder)
    _await(url, lambda text: _LAST_RECORDED in text, output / "first.txt")
    time.sleep(3 * _PATIENCE_SECONDS)  # nothing can be awaited: everything stays as it is
    _await(url, lambda text: True, output / "later.txt")  # noqa: ARG005
    recorder.close()
    _await(url, lambda text: not _has_gauges(text), output / "closed.txt")
    ray.shutdown()


def _has_gauges(text: str) -> bool:
    families = text_string_to_metric_families(text)
    return any(one.type == "gauge" and one.samples for one in families if one.name.startswith("ray_rtp_"))


def _await(url: str, holds: Callable[[str], bool], output: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            text = page(url)
            if holds(text):
                output.write_text(text, encoding="utf-8")
                return
        time.sleep(0.3)
    raise TimeoutError(f"Ray's agent did not serve what {output.name} should hold within {_SECONDS:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
