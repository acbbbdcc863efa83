"""Ranks as workers of Ray Train.

Ray Train places the workers, watches them and tears the group down when one fails; `training.worker` does the rest. Three of Ray's own
paths are not used, for measured reasons (docs/ARCHITECTURE.md): `report` for metrics (each call waits for a poll), its registry of
checkpoints (loses completed ones on a crash) and its retries (the supervisor's start from our own commits instead).
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
from pathlib import Path
from typing import Any

from training.config.schema import ScaleSettings
from training.launch.task import Outcome, RankTask, WorkersFailedError

_OBJECT_STORE_BYTES = 100 * 1024 * 1024  # Ray refuses less than 75 MiB; nothing of ours goes through the object store
_SOCKET_PATH_LIMIT = 107  # sun_path of a Unix socket, less its NUL
_SESSION_PATH_LENGTH = len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")

# Read by Ray when it is imported or started. Each is a default: what the user set stands.
_LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Idle workers that are started ahead carry no runtime environment and can never serve Train's actors.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Nothing drains a node of a cluster that is this machine.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
_ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    # How soon a dead worker is noticed; Ray's 2 s cost a fifth of a restart.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class RayLauncher:
    """Starts Ray on this machine, or joins a cluster, and runs attempts on it; `close` stops what it started."""

    def __init__(self, scale: ScaleSettings, *, scratch: Path) -> None:
        """Args: `scratch` is a folder for Ray's session files; a temporary one is used where its path is too long for sockets."""
        self._scale = scale
        self._scratch = scratch
        self._is_started = False

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt as one `fit()`.

        Raises:
            WorkersFailedError: a worker failed or died, or the group did not start within `scale.start_timeout`.
        """
        if not self._is_started:
            self._start(on_phase)
        on_phase("workers_start")
        from ray.train import TrainingFailedError  # noqa: PLC0415

        from training.launch.ray_trainer import dead_ranks, make_trainer  # noqa: PLC0415

        trainer = make_trainer(task, runs_on_this_machine=self._scale.address is None)
        try:
            result = trainer.fit()
        except TrainingFailedError as error:
            dead = " and ".join(f"rank {rank}" for rank in dead_ranks(error))
            raise WorkersFailedError(f"{dead} died without a word" if dead else str(error)) from error
        return Outcome(**result.return_value)

    def _start(self, on_phase: Callable[[str], None]) -> None:
        on_phase("ray_start")
        _set_environment(_ENVIRONMENT)
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(self._scale.start_timeout))
        _add_project_to_python_path()
        if self._scale.address is None:
            _set_environment(_LOCAL_ENVIRONMENT)
            _use_a_token_of_this_run()
        # Importing Ray Train takes as long as starting Ray's processes: do both at once.
        imports = threading.Thread(target=_import_trainer, name="import-ray-train", daemon=True)
        import ray  # noqa: PLC0415

        imports.start()
        logging.getLogger("ray.train").setLevel(logging.WARNING)
        with _keeping_sigterm_handler():
            ray.init(**self._init_arguments())
        self._is_started = True
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
        """Stop the Ray that this launcher started, or leave the cluster it joined."""
        if self._is_started:
            import ray  # noqa: PLC0415

            ray.shutdown()
            self._is_started = False


def session_folder(scratch: Path) -> Path:
    """`scratch`, or a folder in the system's temporary one where a socket's path would be too long under it."""
    if len(str(scratch)) + _SESSION_PATH_LENGTH <= _SOCKET_PATH_LIMIT:
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch
    return Path(tempfile.gettempdir()) / f"rtp-ray-{os.getuid()}"


@contextmanager
def _keeping_sigterm_handler() -> Iterator[None]:
    """Put the driver's answer to SIGTERM back: `ray.init` replaces it by one that kills Ray's processes and exits.

    A SIGTERM that comes in between finds nothing trained yet, and ends the driver as a second Ctrl-C would.
    """
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, ours)


def _set_environment(defaults: dict[str, str]) -> None:
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _use_a_token_of_this_run() -> None:
    """Guard the local cluster with a token that lives in this process only; Ray would otherwise write one to the home folder."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _add_project_to_python_path() -> None:
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])


def _import_trainer() -> None:
    import training.launch.ray_trainer  # noqa: PLC0415, F401
