"""Starts Ray, lets a process record steps as rank 0 does and leave, and prints what Ray's metrics agent then serves.

Usage: python -m tests.training.launch.leave_ray RAY_FOLDER
       python -m tests.training.launch.leave_ray
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress

import ray

from observability.metrics.ray import RayRecorder
from tests.engines.ports import free_port
from tests.observability.metrics.exported import page, record_everything
from tests.training.runs import small_settings
from training.launch.ray_client import ADDRESS, connect, disconnect

SERIES = "ray_rtp_train_step{"
_SECONDS = 20.0


def start(folder: str) -> None:
    """Start Ray and the rank, and print the samples of the steps that are there when it has ended."""
    port = free_port()
    started = ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder, _metrics_export_port=port)
    environment = {**os.environ, ADDRESS: str(started.address_info["gcs_address"])}
    subprocess.run([sys.executable, "-m", "tests.training.launch.leave_ray"], env=environment, check=True)
    found, deadline = "", time.monotonic() + _SECONDS
    while SERIES not in found and time.monotonic() < deadline:
        with suppress(OSError):
            found = page(f"http://127.0.0.1:{port}/metrics")
        time.sleep(0.2)
    print(*(line for line in found.splitlines() if line.startswith(SERIES)), sep="\n")
    ray.shutdown()


def record_and_leave() -> None:
    """Record a run as rank 0 does, and end as a resident rank does, without cleaning up."""
    connect(small_settings(metrics={"exporter": "ray"}), rank=0)
    recorder = RayRecorder()
    record_everything(recorder)
    recorder.close()
    disconnect()
    os._exit(0)


if __name__ == "__main__":
    start(sys.argv[1]) if len(sys.argv) > 1 else record_and_leave()
