"""Ranks as Ray Train workers.

Ray Train schedules the workers, monitors them, and shuts the group down when one fails; `training.worker` does the rest. For measured
reasons (docs/ARCHITECTURE.md), three features of Ray Train are not used: `report` for metrics (each call waits for a poll), its checkpoint
registry (loses completed checkpoints on a crash), and its retries (the supervisor restarts from our own checkpoints).
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.processes import immune_to_hangup
from training.launch.task import Outcome, RankTask

_SOCKET_PATH_LIMIT = 107  # size of sun_path in sockaddr_un, without the NUL
_SESSION_PATH_LENGTH = len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")

# Read by Ray on import or start. These are defaults: a variable that the user has set takes precedence.
_LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prestarts a worker per CPU, not per rank.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Nothing preempts a local node.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
# Waits, in whole seconds, for the port of Ray's metadata service and for a worker's process: 30 and 60 by default.
_LOCAL_TIMEOUTS = ("RAY_gcs_server_port_wait_time_s", "RAY_worker_register_timeout_seconds")
_ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    # Time to detect a dead worker; the default of 2 s would be a fifth of a restart.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class RayLauncher:
    """Starts a local Ray cluster, or connects to an existing one, and runs attempts on it."""

    def __init__(self, scale: ScaleSettings, *, scratch: Path) -> None:
        """`scratch` is a folder for Ray's session files, unless its path is too long for sockets; see `session_folder`."""
        self._scale = scale
        self._scratch = scratch
        self._is_started = False
        self._stops = ExitStack()

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt as one `fit()`; starts Ray first if necessary.

        Raises:
            WorkersFailedError: a worker failed or died, or the group did not start within `scale.start_timeout`.
            TrainingFailedError: Ray did not start on this machine.
        """
        if not self._is_started:
            self._start(on_phase)
        on_phase("workers_start")
        from training.launch.ray_trainer import run_attempt  # noqa: PLC0415 - imports Ray, after its environment is set

        return run_attempt(task, is_local=self._scale.address is None)

    def _start(self, on_phase: Callable[[str], None]) -> None:
        on_phase("ray_start")
        _set_environment(_ENVIRONMENT)
        timeout = self._scale.start_timeout
        _set_environment({"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(timeout)})
        _add_project_to_python_path()
        if self._scale.address is None:
            _set_environment(_LOCAL_ENVIRONMENT | dict.fromkeys(_LOCAL_TIMEOUTS, str(math.ceil(timeout))))
            _require_auth_token()
        import ray  # noqa: PLC0415 - reads the environment on import

        # Importing Ray Train takes as long as starting Ray's processes: do both concurrently.
        imports = threading.Thread(
            target=import_module, args=("training.launch.ray_trainer",), name="import-ray-train", daemon=True
        )
        imports.start()
        logging.getLogger("ray.train").setLevel(logging.WARNING)
        with _preserve_sigterm_handler(), immune_to_hangup():
            address = self._scale.address or self._start_node()
            self._stops.callback(ray.shutdown)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
        imports.join()
        self._is_started = True

    def _start_node(self) -> str:
        """Start a Ray cluster of one node on this machine; returns its address."""
        from training.launch.ray_node import LocalNode  # noqa: PLC0415 - imports Ray, after its environment is set

        node = LocalNode(
            cpus=self._scale.workers * self._scale.cpus_per_worker,
            gpus=self._scale.workers if self._scale.gpu else 0,
            folder=session_folder(self._scratch),
            start_timeout=self._scale.start_timeout,
        )
        self._stops.callback(node.stop)
        return str(node.address)

    def close(self) -> None:
        """Stop the local Ray cluster, or disconnect from the existing one."""
        self._stops.close()
        self._is_started = False


def session_folder(scratch: Path) -> Path:
    """`scratch`, or a folder in the system's temporary folder if the paths of Ray's sockets would be too long."""
    if len(str(scratch)) + _SESSION_PATH_LENGTH <= _SOCKET_PATH_LIMIT:
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch
    return Path(tempfile.gettempdir()) / f"rtp-ray-{os.getuid()}"


@contextmanager
def _preserve_sigterm_handler() -> Iterator[None]:
    """Restore the driver's SIGTERM handler: `ray.init` installs one that kills Ray's processes and exits.

    A SIGTERM within the block interrupts the driver like a second Ctrl-C; nothing has been trained yet.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, handler)


def _set_environment(defaults: dict[str, str]) -> None:
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _require_auth_token() -> None:
    """Protect the local cluster with a token in this process's environment; otherwise Ray writes one to the home folder."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _add_project_to_python_path() -> None:
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
