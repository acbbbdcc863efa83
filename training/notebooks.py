"""The notebooks of the documentation, opened in JupyterLab as copies: what they are executed with stays out of git."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from infra.spec.section import did_you_mean
from training.errors import PreflightError, SettingsError

SOURCE: Final = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
COPIES: Final = Path(".local/notebooks")
"""Two folders below the one with `.local`, as `SOURCE` is below the checkout: a notebook's first cell goes there."""


def copy_notebooks(name: str | None = None, *, source: Path = SOURCE, folder: Path = COPIES) -> Path:
    """Copy the notebooks that are not in the folder yet; edited ones stay as they are.

    Args:
        name: the notebook to open, with or without `.ipynb`; None is the folder.
        source: folder of the notebooks.
        folder: folder of the copies.

    Returns:
        the copy of the named notebook, or the folder.

    Raises:
        PreflightError: the documentation is not installed, as with a wheel, or the copies cannot be written.
        SettingsError: there is no notebook of this name.
    """
    files = sorted(source.glob("*.ipynb"))
    if not files:
        raise PreflightError(
            f"{source}: no notebooks", remedy="they are part of a checkout of the platform: make notebook"
        )
    names = [file.stem for file in files]
    stem = None if name is None else name.removesuffix(".ipynb")
    if stem is not None and stem not in names:
        raise SettingsError(
            f"notebook {name}: no such notebook",
            remedy=did_you_mean(stem, names) or f"notebooks: {', '.join(names)}; for one in a session name its ENV=…",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            if not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise PreflightError(
            f"{error.filename}: {error.strerror}: the notebooks cannot be copied",
            remedy=f"make {folder} writable, or start JupyterLab on a copy of {source}",
        ) from error
    return folder if stem is None else folder / f"{stem}.ipynb"
