"""Connects a rank's process, which is not a Ray worker, to the Ray cluster of its agent, and disconnects it; only where it needs Ray."""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress

from training.config.schema import TrainingSettings

ADDRESS = "RTP_RAY_ADDRESS"
"""Environment variable of a rank: the address of the metadata service of its agent's cluster."""

_LOOPBACK = "127."

_KEEPS_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable of Ray's: with 0, Ray does not replace a loopback address by one of another interface, on which a local node does
not listen. Read on import."""

_PATIENCE_SECONDS = 10.0
"""Longest wait for Ray's disconnection, which takes 0.3 s."""


def connect(settings: TrainingSettings, *, rank: int) -> None:
    """Connect a rank that reads with Ray Data, or that sends metrics to Ray's agent; others import no Ray, which takes a second."""
    sends_metrics = rank == 0 and settings.metrics.exporter == "ray"
    if ADDRESS not in os.environ or not (sends_metrics or settings.data.reader == "ray_data"):
        return
    address = os.environ[ADDRESS]
    if address.startswith(_LOOPBACK):
        os.environ[_KEEPS_LOOPBACK] = "0"
    import ray  # noqa: PLC0415 - see above

    if not ray.is_initialized():
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)


def disconnect() -> None:
    """End the connection, if there is one: Ray then sends the metrics' last values, which it otherwise does every 10 s (Ray 2.60).

    A short run, and the end of a long one, would be missing from Prometheus. A rank that has succeeded neither fails nor waits for long
    because of it.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return

    def shut_down() -> None:
        with suppress(Exception):
            ray.shutdown()

    # Ray has no time limit for it, and may wait for a head that has just gone.
    ending = threading.Thread(target=shut_down, name="ray-shutdown", daemon=True)
    ending.start()
    ending.join(_PATIENCE_SECONDS)
