"""Ranks as Ray Train workers.

Ray Train schedules the workers, monitors them, and shuts the group down when one fails; `training.worker` does the rest. For measured
reasons (docs/ARCHITECTURE.md), three features of Ray Train are not used: `report` for metrics (each call waits for a poll), its checkpoint
registry (loses completed checkpoints on a crash), and its retries (the supervisor restarts from our own checkpoints).
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from training.config.schema import ScaleSettings
from training.launch.processes import immune_to_hangup
from training.launch.task import Outcome, RankTask

_OBJECT_STORE_BYTES = 100 * 1024 * 1024  # Ray's minimum is 75 MiB; training stores no objects
_SOCKET_PATH_LIMIT = 107  # size of sun_path in sockaddr_un, without the NUL
_SESSION_PATH_LENGTH = len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")

# Read by Ray on import or start. These are defaults: a variable that the user has set takes precedence.
_LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Prestarted workers have no runtime environment, so Ray Train's actors cannot use them.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Nothing preempts a local node.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
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
        self._shutdown: Callable[[], None] | None = None

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt as one `fit()`; starts Ray first if necessary.

        Raises:
            WorkersFailedError: a worker failed or died, or the group did not start within `scale.start_timeout`.
        """
        if self._shutdown is None:
            self._start(on_phase)
        on_phase("workers_start")
        from training.launch.ray_trainer import run_attempt  # noqa: PLC0415 - imports Ray, after its environment is set

        return run_attempt(task, is_local=self._scale.address is None)

    def _start(self, on_phase: Callable[[str], None]) -> None:
        on_phase("ray_start")
        _set_environment(_ENVIRONMENT)
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(self._scale.start_timeout))
        _add_project_to_python_path()
        if self._scale.address is None:
            _set_environment(_LOCAL_ENVIRONMENT)
            _require_auth_token()
        import ray  # noqa: PLC0415 - reads the environment on import

        # Importing Ray Train takes as long as starting Ray's processes: do both concurrently.
        imports = threading.Thread(
            target=import_module, args=("training.launch.ray_trainer",), name="import-ray-train", daemon=True
        )
        imports.start()
        logging.getLogger("ray.train").setLevel(logging.WARNING)
        with _preserve_sigterm_handler(), immune_to_hangup():
            ray.init(**self._init_arguments())
        self._shutdown = ray.shutdown
        imports.join()

    def _init_arguments(self) -> dict[str, Any]:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
        if self._scale.address is not None:
            return {"address": self._scale.address, **quiet}
        workers = self._scale.workers
        return {
            **quiet,
            "num_cpus": workers * self._scale.cpus_per_worker,
            "num_gpus": workers if self._scale.gpu else 0,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(session_folder(self._scratch)),
        }

    def close(self) -> None:
        """Stop the local Ray cluster, or disconnect from the existing one."""
        if self._shutdown is not None:
            self._shutdown()
            self._shutdown = None


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
