"""Starts Ray, records a run with its exporter, and saves what Ray's metrics agent serves.

Usage: python -m tests.observability.metrics.record_into_ray RAY_FOLDER OUTPUT_FILE
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import ray

from observability.metrics.exporters import open_recorder
from tests.engines.ports import free_port
from tests.observability.metrics.exported import page, record_everything

_SECONDS = 60.0
_LAST_RECORDED = "ray_rtp_train_spool_backlog_bytes"


def main(folder: str, output: Path) -> None:
    """Record a run, wait until the agent serves it, and save the response.

    Raises:
        TimeoutError: the agent did not serve the metrics in time.
    """
    port = free_port()
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        _temp_dir=folder,
        _metrics_export_port=port,
        _system_config={"metrics_report_interval_ms": 1000},
    )
    recorder = open_recorder("ray", host="", port=0)
    record_everything(recorder)
    recorder.close()
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            text = page(f"http://127.0.0.1:{port}/metrics")
            if _LAST_RECORDED in text:
                output.write_text(text, encoding="utf-8")
                ray.shutdown()
                return
        time.sleep(0.3)
    raise TimeoutError(f"Ray's agent did not serve {_LAST_RECORDED} within {_SECONDS:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
