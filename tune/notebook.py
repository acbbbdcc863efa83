"""The notebook of a search: a copy in the search's folder, which is its user's to edit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from training.errors import PreflightError

NOTEBOOK: Final = "search.ipynb"
_TEMPLATE = Path(__file__).with_name(NOTEBOOK)


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
