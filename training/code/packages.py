"""The packages of a code folder's requirements.txt on this machine, installed beside the platform's environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from infra.packages.lock import read_lock
from infra.packages.overlay import THIS_PYTHON, overlay
from infra.packages.requirements import (
    CLIENTS,
    REQUIREMENTS_FILE,
    Platform,
    missing_packages,
    read_requirements,
    unmet,
)
from infra.spec.errors import RefusedError

_ROOT = Path(__file__).resolve().parents[2]
_LOCK = _ROOT / "requirements.lock"
_OVERLAYS = _ROOT / ".local" / "packages"


def packages_for(
    folder: Path, *, lock: Path = _LOCK, root: Path = _OVERLAYS, say: Callable[[str], None] | None = None
) -> Path | None:
    """The folder with the packages that a code folder needs and this environment lacks, installed if it is not there.

    Its packages are for the end of the import path of every process of the run. Where the platform has no lock beside it, as in
    the trainer image and in an environment with its wheel, nothing is installed, and what is lacking is refused.

    Args:
        folder: the code folder.
        lock: the platform's lock.
        root: folder of the installed packages.
        say: prints a line of progress; None prints on standard error.

    Returns:
        the folder; None if nothing is lacking.

    Raises:
        SettingsError: requirements.txt cannot be read, or contradicts the platform's versions.
        RefusedError: the packages cannot be installed, or this environment lacks them.
    """
    requirements = read_requirements(folder)
    if not requirements:
        return None
    if not lock.exists():
        require_installed(folder)
        return None
    locked = {package.name: package.version for package in read_lock(lock)}
    platform = Platform(locked=locked, installed=lambda name: _version(name) if name in locked else None)
    missing = missing_packages(folder, requirements, platform)
    if not missing:
        return None
    return overlay(missing, platform, THIS_PYTHON, root=root, say=say or _say).packages


def require_installed(folder: Path) -> None:
    """Refuse to run code whose requirements this environment does not meet.

    Raises:
        SettingsError: requirements.txt cannot be read.
        RefusedError: names every requirement that is not met.
    """
    lacking = "".join(f"\n  {line}" for line in unmet(read_requirements(folder), _version, _needs))
    if lacking:
        raise RefusedError(
            f"this environment does not meet {REQUIREMENTS_FILE} of the code:{lacking}",
            remedy="pip install them; for a job, build an image that has them with make image FROM=folder ENV=…, and name it with IMAGE=…",
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return _version(CLIENTS[name]) if name in CLIENTS else None


def _needs(name: str) -> list[str]:
    return metadata.requires(name) or []


def _say(line: str) -> None:
    print(f"packages: {line}", file=sys.stderr)
