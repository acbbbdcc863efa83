"""The notebook of a search: a copy in the search's folder, which is its user's to edit, and JupyterLab on it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final, NoReturn

from training.errors import PreflightError

NOTEBOOK: Final = "search.ipynb"
_TEMPLATE = Path(__file__).with_name(NOTEBOOK)
_PLATFORM = _TEMPLATE.parent.parent

_OPTIONS = (
    "--ip=127.0.0.1",
    "--allow-root",
    # It would ask the package index for newer versions and for news.
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


def write_notebook(folder: Path) -> Path:
    """The notebook in a search's folder; one that is there stays as it is.

    Raises:
        PreflightError: it cannot be written.
    """
    file = folder / NOTEBOOK
    try:
        if not file.exists():
            shutil.copyfile(_TEMPLATE, file)
    except OSError as error:
        raise PreflightError(
            f"{file}: {error.strerror}: the notebook cannot be written",
            remedy=f"make the folder writable, or copy {_TEMPLATE} elsewhere and name the search's folder in its first cell",
        ) from error
    return file


def start_jupyterlab(file: Path, *, port: int | None = None) -> NoReturn:
    """Become JupyterLab with this notebook open; its kernels import the platform.

    Args:
        file: the notebook.
        port: on the loopback interface; None is 8888, or the next that is free.
    """
    imports = [str(_PLATFORM), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(imports)
    ports = [] if port is None else [f"--port={port}", "--ServerApp.port_retries=0"]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(file.resolve()), *_OPTIONS, *ports])  # noqa: S606
