"""A code folder on the import path."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def use_code(folder: Path) -> None:
    """Let this process and its children import from a folder, and the packages that it requires.

    It comes first on the import path: a driver started in the folder that the code was packed from would otherwise hand that folder,
    which changes, to its ranks. It hides nothing: `rules` refuses modules with names of ours, of Python's or of installed packages.
    Its packages come last.

    Raises:
        PlatformError: see `packages_for`.
    """
    path, packages = str(folder), required_packages(folder)
    _add(path, packages, to=sys.path)
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    _add(path, packages, to=inherited)
    os.environ["PYTHONPATH"] = os.pathsep.join(inherited)
    importlib.invalidate_caches()


@contextmanager
def on_import_path(folder: Path, *, with_packages: bool = True) -> Iterator[None]:
    """Let this process find the modules of a folder in the block.

    Args:
        folder: the code folder.
        with_packages: also the packages that it requires; raises like `use_code`.
    """
    before = sys.path.copy()
    _add(str(folder), required_packages(folder) if with_packages else [], to=sys.path)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


def _add(folder: str, packages: list[str], *, to: list[str]) -> None:
    if folder not in to:
        to.insert(0, folder)
    to.extend(path for path in packages if path not in to)


def required_packages(folder: Path) -> list[str]:
    """Where the packages are that a folder requires and the platform lacks; raises like `packages_for`."""
    if not (folder / "requirements.txt").is_file():
        return []
    from training.code.packages import packages_for  # noqa: PLC0415 - most folders require nothing

    found = packages_for(folder)
    return [] if found is None else [str(found)]
