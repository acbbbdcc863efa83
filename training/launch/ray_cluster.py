"""The Ray cluster of a run or a search: one on this machine, which ends with it, or an existing one."""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

from training.launch.processes import immune_to_hangup

_TRAIN_LOG = logging.getLogger("ray.train")
_SOCKET_PATH_LIMIT = 107  # size of sun_path in sockaddr_un, without the NUL
_SESSION_PATH_LENGTH = len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")

# Read by Ray on import or start. These are defaults: a variable that the user has set takes precedence.
_LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prestarts a worker per CPU, not per rank.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
# Ray on connecting and NumPy on import add these while Ray's threads read the environment, which crashes the driver where glibc has to
# enlarge the table (before 2.41; ray-project/ray#62028). With names that exist, only values change.
_ADDED_LATER = {"PYTHONBREAKPOINT": "ray.util.rpdb._driver_set_trace", "OPENBLAS_MAIN_FREE": "1"}
# Waits, in whole seconds: for the port of Ray's metadata service, for a worker's process, for an answer of the metadata service, and for a
# metadata service that does not answer at all, after which raylet and driver end themselves. By default 30, and 60 each.
_LOCAL_TIMEOUTS = (
    "RAY_gcs_server_port_wait_time_s",
    "RAY_worker_register_timeout_seconds",
    "RAY_gcs_server_request_timeout_seconds",
    "RAY_gcs_rpc_server_reconnect_timeout_s",
)
_ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    # Otherwise the thread of a worker group that outlives the cluster starts another cluster with its next call.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # Time to detect a dead worker; the default of 2 s would be a fifth of a restart.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # An actor, which starts another process: `ray_drain` watches the nodes instead.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class RayCluster:
    """Starts a local Ray cluster, or connects to an existing one."""

    def __init__(self, *, address: str | None, cpus: int, gpus: int, start_timeout: float, scratch: Path) -> None:
        """Prepare a cluster; nothing starts before `start`.

        Args:
            address: of an existing cluster; None starts one.
            cpus: CPUs that a local cluster offers.
            gpus: GPUs that a local cluster offers.
            start_timeout: seconds until a start has failed.
            scratch: folder for Ray's session files, unless its path is too long for sockets; see `session_folder`.
        """
        self._address = address
        self._cpus = cpus
        self._gpus = gpus
        self._start_timeout = start_timeout
        self._scratch = scratch
        self._stops = ExitStack()

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine and nobody else uses it."""
        return self._address is None

    def start(self, *, imports: str) -> None:
        """Start it, or connect to it, while a module is imported: importing Ray's libraries takes as long as starting its processes.

        Raises:
            TrainingFailedError: Ray did not start on this machine.
        """
        _set_environment(_ENVIRONMENT | _ADDED_LATER)
        _set_environment({"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(self._start_timeout)})
        _add_project_to_python_path()
        if self.is_local:
            timeouts = dict.fromkeys(_LOCAL_TIMEOUTS, str(math.ceil(self._start_timeout)))
            _set_environment(_LOCAL_ENVIRONMENT | timeouts)
            _require_auth_token()
        import ray  # noqa: PLC0415 - reads the environment on import

        from training.launch.ray_messages import leave_out_lost_workers  # noqa: PLC0415 - imports Ray

        leave_out_lost_workers()
        importing = threading.Thread(target=import_module, args=(imports,), name="import", daemon=True)
        importing.start()
        _TRAIN_LOG.setLevel(logging.WARNING)
        with _preserve_sigterm_handler(), immune_to_hangup():
            address = self._address or self._start_node()
            self._stops.callback(ray.shutdown)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
        importing.join()

    def _start_node(self) -> str:
        """Start a Ray cluster of one node on this machine; returns its address."""
        from training.launch.ray_node import LocalNode  # noqa: PLC0415 - imports Ray, after its environment is set

        node = LocalNode(
            cpus=self._cpus,
            gpus=self._gpus,
            folder=session_folder(self._scratch),
            start_timeout=self._start_timeout,
        )
        self._stops.callback(node.stop)
        return str(node.address)

    def close(self) -> None:
        """Stop the local cluster, or disconnect from the existing one."""
        # A thread that still waits for the cluster gets an error, of which Ray Train would print a traceback.
        _TRAIN_LOG.setLevel(logging.CRITICAL)
        self._stops.close()


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
