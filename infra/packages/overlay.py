"""Installs packages into a folder of their own, beside an environment that stays as it is.

uv resolves the requirements with the platform's versions as constraints, and installs what the platform lacks, by hash. The
folder is named after its input, so the same input is installed once; it appears when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from infra.packages.lock import Package, read_lock
from infra.packages.requirements import Platform, describe
from infra.spec.errors import RefusedError

_PARTIAL = "part-"
_SHOWN_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Target:
    """The Python that imports the packages.

    Attributes:
        python: its version, e.g. 3.11.
        platform: its platform, as `uv --python-platform` names it; None is this machine.
    """

    python: str
    platform: str | None = None

    @property
    def options(self) -> list[str]:
        """Options of uv. Nothing is compiled for another machine."""
        if self.platform is None:
            return ["--python", sys.executable]
        return ["--python-version", self.python, "--python-platform", self.platform, "--only-binary", ":all:"]


THIS_PYTHON = Target(python=".".join(map(str, sys.version_info[:3])))


class Overlay(NamedTuple):
    """Installed packages.

    Attributes:
        packages: folder with the packages, for the import path.
        lock: file with their versions and hashes.
    """

    packages: Path
    lock: Path

    @property
    def contents(self) -> tuple[Package, ...]:
        """The packages."""
        return tuple(read_lock(self.lock))


def overlay(
    requirements: Sequence[Requirement],
    platform: Platform,
    target: Target,
    *,
    root: Path,
    say: Callable[[str], None],
) -> Overlay:
    """The packages that some requirements need and the platform lacks; installed at the first call.

    Args:
        requirements: what to install, with all that it needs.
        platform: packages that keep their versions and are not installed.
        target: the Python that imports the packages.
        root: folder of overlays.
        say: prints a line of progress.

    Raises:
        RefusedError: uv is missing, or cannot resolve or install them; has its last lines.
    """
    folder = root / _key(requirements, platform, target)
    found = Overlay(folder / "packages", folder / "requirements.lock")
    if folder.is_dir():
        return found
    root.mkdir(parents=True, exist_ok=True)
    with _only_one(root, say):
        if folder.is_dir():
            return found
        _sweep(root)
        say(f"installing {describe(requirements)} into {folder}; once for these requirements")
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=root, ignore_cleanup_errors=True) as partial:
            ready = Path(partial, "ready")
            _install(requirements, platform, target, ready)
            ready.rename(folder)
    said = " ".join(f"{one.name} {one.version}," for one in found.contents).rstrip(",")
    say(f"installed {said or 'nothing, because the platform has all of it'}")
    return found


def _key(requirements: Sequence[Requirement], platform: Platform, target: Target) -> str:
    # torch is the one package of which an environment may have another build than the lock.
    versions = {**platform.locked, "torch": platform.version("torch")}
    given = [
        sorted(map(str, requirements)),
        versions,
        target.python,
        target.platform or f"{sys.platform}-{os.uname().machine}",
    ]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def _only_one(root: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process installs here."""
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that installs packages")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(root: Path) -> None:
    """Delete what killed commands have left; nobody else installs now."""
    for left in root.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)


def _install(requirements: Sequence[Requirement], platform: Platform, target: Target, folder: Path) -> None:
    packages, lock = folder / "packages", folder / "requirements.lock"
    packages.mkdir(parents=True)
    wanted, constraints, resolved = (folder.with_name(name) for name in ("wanted.txt", "platform.txt", "resolved.txt"))
    wanted.write_text("".join(f"{one}\n" for one in requirements), encoding="utf-8")
    # Without the local part, e.g. +cpu: an index has other builds of the same version, whose requirements are the same.
    pinned = ((name, (platform.version(name) or "").partition("+")[0]) for name in platform.locked)
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pinned), encoding="utf-8")
    _uv(
        *("pip", "compile", str(wanted), "--constraint", str(constraints), "--output-file", str(resolved)),
        *("--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", *target.options),
    )
    lacking = [one for one in read_lock(resolved) if platform.installed(one.name) is None]
    lock.write_text("".join(map(_entry, lacking)), encoding="utf-8")
    if lacking:
        # An image compiles in its own build, and gets files instead of links into uv's cache.
        way = ("--compile-bytecode",) if target.platform is None else ("--link-mode", "copy")
        _uv(
            *("pip", "install", "--target", str(packages), "--requirement", str(lock)),
            *("--no-deps", "--require-hashes", *way, *target.options),
        )
    (packages / ".lock").unlink(missing_ok=True)  # uv's own
    if target.platform is not None:
        _start_python_of_path(packages / "bin")


def _start_python_of_path(programs: Path) -> None:
    """Have programs that uv made for this machine's Python start the one that is first on PATH."""
    for program in programs.glob("*"):
        line, _, rest = program.read_bytes().partition(b"\n")
        if line == f"#!{sys.executable}".encode():
            program.write_bytes(b"#!/usr/bin/env python3\n" + rest)


def _entry(package: Package) -> str:
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in package.hashes)
    return f"{package.name}=={package.version}{hashes}\n"


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    program = str(beside) if beside.exists() else shutil.which("uv")
    if program is None:
        raise RefusedError("no `uv` to install packages with", remedy="`make env` installs it into .venv")
    done = subprocess.run(
        [program, *arguments, "--quiet", "--color", "never"], stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()[-_SHOWN_LINES:]
        raise RefusedError(
            "the packages of requirements.txt cannot be installed; uv says:" + "".join(f"\n  {line}" for line in lines),
            remedy="correct requirements.txt, whose packages have to fit the versions of requirements.lock; "
            "UV_DEFAULT_INDEX or UV_FIND_LINKS names a package index or a folder of wheels of your own",
        )
