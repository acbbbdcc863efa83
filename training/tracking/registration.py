"""Registers the trained model in a process of its own.

torch and torch.export take 700 MB, three times what the rest of the delivery needs. The follower lives as long as the run, so it leaves
them to a process that ends when the model is registered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from training.errors import PlatformError, SettingsError
from training.launch.processes import die_with_parent
from training.tracking.process import library_environment
from training.tracking.state import StoreUnavailableError


class ModelRegistration:
    """A process that prepares to register a model, which takes seconds, and waits for the request."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "training.tracking.model"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=library_environment(),
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call, safe after a fork with threads
        )

    def register(self, run_directory: Path, *, uri: str, run_id: str, name: str) -> str:
        """Register the model of a run and return its version; see `training.tracking.model.register_model`.

        Raises:
            StoreUnavailableError: the store is unavailable or rejects a request.
            SettingsError: the model can no longer be built.
            PlatformError: the process ended without an answer.
        """
        request = {"run_directory": str(run_directory.resolve()), "uri": uri, "run_id": run_id, "name": name}
        output, _ = self._process.communicate(json.dumps(request))
        if not output:
            raise PlatformError(
                f"the model could not be registered: the process that exports it ended with status {self._process.returncode}",
                remedy="its output has the reason (logs/tracking.log of a run's own follower); a negative status is a signal, "
                "and -9 often the out-of-memory killer",
            )
        answer = json.loads(output)
        if "unavailable" in answer:
            raise StoreUnavailableError(answer["unavailable"])
        if "refused" in answer:
            raise SettingsError(answer["refused"], remedy=answer["remedy"])
        return str(answer["version"])

    def cancel(self) -> None:
        """End the process without registering a model. Does nothing after `register`."""
        self._process.terminate()
        self._process.communicate()
