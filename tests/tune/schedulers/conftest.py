"""The Ray node of the searches that train nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest
import ray
from ray.tune.execution import tune_controller

from tests.engines.ray_cluster import SLOTS, short_folder
from tests.engines.report_table import ran
from training.launch.ray_node import LocalNode

_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_register_timeout_seconds": "300",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[None]:
    """A Ray node that the tests of this folder share. It has no agent to make runtime environments, which Ray Tune asks for."""
    with pytest.MonkeyPatch.context() as patch, short_folder() as folder:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(tune_controller, "_ActorClassCache", lambda: SimpleNamespace(get=cache(ray.remote)))
        node = LocalNode(cpus=SLOTS, gpus=0, folder=folder, start_timeout=300)
        try:
            ray.init(node.address, log_to_driver=False, logging_level=logging.ERROR)
            yield
            ran("Ray cluster")
        finally:
            ray.shutdown()
            node.stop()
