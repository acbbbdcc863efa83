"""JupyterLab on a notebook of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NoReturn

_PLATFORM: Final = Path(__file__).resolve().parents[1]
_OPTIONS: Final = (
    "--ip=127.0.0.1",
    "--allow-root",
    # It would ask the package index for newer versions and for news.
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


def start_jupyterlab(file: Path, *, port: int | None = None) -> NoReturn:
    """Become JupyterLab with this notebook or folder open; its kernels import the platform.

    Args:
        file: the notebook or folder.
        port: on the loopback interface; None is 8888, or the next that is free.
    """
    imports = [str(_PLATFORM), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(imports)
    ports = [] if port is None else [f"--port={port}", "--ServerApp.port_retries=0"]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(file.resolve()), *_OPTIONS, *ports])  # noqa: S606
