"""Builds wheels from copies of the checkout, and installs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.engines.report_table import ran, skipped
from tests.makefile import ROOT

UV = ROOT / ".venv" / "bin" / "uv"
_SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
_LEFT_OUT = {Requirement(one).name for one in _SETTINGS["override-dependencies"]}
"""Packages that the lock leaves out although others require them."""

_UNREACHABLE = re.compile(r"^.*(?:Failed to fetch|error sending request|dns error|timed out).*$", re.MULTILINE)


def build(checkout: Path, *, cache: Path, umask: int = -1) -> Path:
    """The wheel that `make wheel` builds there; skips the test where nothing serves the packages that build it."""
    done = subprocess.run(
        [checkout / ".make" / "wheel"],
        env={**os.environ, "UV_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
    )
    if done.returncode and (found := _UNREACHABLE.search(done.stderr)):
        skipped("Package index", found[0].strip(), "connect to the package index that uv is configured for")
    assert done.returncode == 0, done.stderr
    ran("Package index")
    [wheel] = (checkout / ".local" / "dist").iterdir()
    return wheel


def read_metadata(wheel: Path) -> metadata.PathDistribution:
    """The metadata of a wheel."""
    [folder] = (path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info"))
    return metadata.PathDistribution(folder)


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheel.

    Attributes:
        folder: of the environment.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path, extras: set[str]) -> Installation:
        """Install a wheel with extras.

        What it requires is linked, file by file, from the environment of the tests: the same packages that an installer would
        choose, without a download of torch. Nothing else of that environment can be imported.
        """
        _uv("venv", "--quiet", "--python", sys.executable, str(folder))
        _uv(
            "pip",
            "install",
            "--quiet",
            "--offline",
            "--no-deps",
            "--python",
            str(folder / "bin" / "python"),
            str(wheel),
        )
        [packages] = folder.glob("lib/python3*/site-packages")
        for distribution in needed(read_metadata(wheel), extras):
            _link(distribution, packages)
        return cls(folder)

    def run(self, *words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder, with none of the checkout's variables."""
        kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {**kept, **environment, "PATH": path}
        program = shutil.which(words[0], path=path)
        assert program is not None, words[0]
        command = [program, *words[1:]]
        return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def needed(wheel: metadata.Distribution, extras: set[str]) -> list[metadata.Distribution]:
    """All distributions that a wheel with extras requires, directly or not, as they are installed here."""
    found = dict[tuple[str, str], metadata.Distribution]()
    to_do = list(_required(wheel, extras))
    while to_do:
        requirement = to_do.pop()
        for extra in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), extra)
            if key not in found:
                found[key] = metadata.distribution(requirement.name)
                to_do += _required(found[key], {extra})
    return list({name: distribution for (name, _), distribution in found.items()}.values())


def _required(distribution: metadata.Distribution, extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, distribution.requires or []):
        marker = requirement.marker
        is_met = marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})
        if is_met and requirement.name not in _LEFT_OUT:
            yield requirement


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or []:
        source = Path(str(file.locate()))
        if ".." in file.parts or not source.is_file():
            continue  # programs, which have the path of their interpreter
        compiled = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        for path, place in (
            (source, packages / file),
            (compiled, packages / file.parent / "__pycache__" / compiled.name),
        ):
            if path.is_file() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(path)


def _uv(*words: str) -> None:
    subprocess.run([UV, *words], check=True, capture_output=True, text=True)
