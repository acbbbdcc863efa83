"""A new project: a folder with a model, a dataset and an objective of one's own, which trains as it is.

`project_template` is such a project. It is copied, with its name replaced.
"""

from __future__ import annotations

import keyword
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from infra.spec.errors import RefusedError, SettingsError
from training.code.selection import select

TEMPLATE = Path(__file__).resolve().with_name("project_template")

_CHECKOUT = Path(__file__).resolve().parents[1]
_TEMPLATE_NAME = "my-project"
_TEMPLATE_PACKAGE = "my_project"
_RULE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project that was written.

    Attributes:
        folder: absolute path.
        package: name of the Python package in it.
    """

    folder: Path
    package: str


def create(name: str | None) -> Project:
    """Write a new project.

    Args:
        name: as `place_of` takes it.

    Raises:
        SettingsError: the name cannot be that of a project, or the place is wrong.
        RefusedError: the folder is not empty, or cannot be written.
    """
    if not name:
        raise SettingsError("NAME is missing: the project needs a name", remedy="make new NAME=my-project")
    folder = place_of(name)
    package = _package(folder.name)
    _check_place(folder)
    try:
        _copy(folder, package)
    except OSError as error:
        raise RefusedError(
            f"{error.filename or folder} cannot be written: {error.strerror}", remedy="choose another NAME=folder"
        ) from error
    return Project(folder=folder, package=package)


def describe(project: Project) -> str:
    """For people: what was written, and what to do next."""
    code = min(str(project.folder), os.path.relpath(project.folder), key=len)
    steps = {
        f"make train CODE={code}": "train it here",
        f"make tune CODE={code}": "search for better settings",
        f"make test CODE={code}": "run its tests",
        f"make train CODE={code} ENV=… TEAM=… GPU=1": "train it on a cluster",
        "docs/OWN_CODE.md": "how to go on",
    }
    width = max(map(len, steps))
    lines = (f"  {step:{width}}  # {purpose}" for step, purpose in steps.items())
    return "\n".join([f"{code} has a model, a dataset and an objective in the package {project.package}", *lines])


def place_of(name: str) -> Path:
    """The folder of a project: beside the checkout for a plain name given in the checkout, otherwise a path from here."""
    here = Path.cwd()
    if "/" not in name and here.is_relative_to(_CHECKOUT):
        here = _CHECKOUT.parent
    folder = here / name
    return folder.parent.resolve() / folder.name


def _package(name: str) -> str:
    """Name of the package in a folder of this name.

    Raises:
        SettingsError: it is no name of a folder and a package, or of a module that exists.
    """
    if not _RULE.fullmatch(name):
        raise SettingsError(
            f"NAME: {name!r} must consist of letters, digits, - and _, and start with a letter",
            remedy="for example make new NAME=my-project",
        )
    package = name.replace("-", "_").lower()
    if keyword.iskeyword(package):
        raise SettingsError(
            f"NAME: {name!r} is a word of Python's, so it cannot be imported", remedy="choose another NAME"
        )
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:  # a folder without __init__.py hides nothing
        raise SettingsError(
            f"NAME: Python would import its own or an installed module {package!r} in place of the project's",
            remedy="choose another NAME",
        )
    return package


def _check_place(folder: Path) -> None:
    if folder.is_relative_to(_CHECKOUT):
        raise SettingsError(
            f"{folder} is inside the platform's own checkout {_CHECKOUT}, where an upgrade of the platform meets your files",
            remedy=f"put it beside the checkout: make new NAME=../{folder.name}",
        )
    if not folder.parent.is_dir():
        raise SettingsError(f"{folder.parent}: no such folder", remedy="create it, or choose another NAME=folder")
    if folder.exists() and not folder.is_dir():
        raise RefusedError(f"{folder} is a file", remedy="choose another NAME")
    found = [path for path in folder.iterdir() if path.name != ".git"] if folder.exists() else []
    if found:
        raise RefusedError(
            f"{folder} has {len(found)} files or folders already", remedy="choose another NAME, or move them away"
        )


def _copy(folder: Path, package: str) -> None:
    """Copy the template's files, without what programs have left there."""
    for path in select(TEMPLATE, is_copy=True).files:
        target = folder / path.replace(_TEMPLATE_PACKAGE, package)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATE / path).read_text(encoding="utf-8")
        text = text.replace(_TEMPLATE_NAME, folder.name).replace(_TEMPLATE_PACKAGE, package)
        target.write_text(text, encoding="utf-8")
