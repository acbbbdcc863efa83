"""A real engine that builds images without a registry: buildah, with a base image made of this machine's Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.engines.report_table import ran, skipped

NAME = "buildah"
BASE = "localhost/python-base"
_PROGRAMS = ("sh", "chmod", "mkdir", "find", "touch")
_UNUSED = (
    "test",
    "site-packages",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "__pycache__",
    "tkinter",
    "turtledemo",
    "config-*",
)


@dataclass(frozen=True)
class ImageBuilder:
    """An engine with storage of its own.

    Attributes:
        program: path of a program `buildah`, which uses that storage.
        folder: its folder.
    """

    program: Path
    folder: Path

    def run(self, *arguments: str) -> str:
        """Run a command; gives its standard output."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout

    def export(self, reference: str, folder: Path) -> str:
        """Write an image to a folder as an OCI layout, as a push would; gives the digest of its manifest."""
        digest = folder.with_suffix(".digest")
        self.run("push", "--quiet", "--digestfile", str(digest), reference, f"oci:{folder}:x")
        return digest.read_text().strip()


def image_builder(folder: Path) -> ImageBuilder:
    """An engine with the base image; skips if there is none, or if it cannot run commands here."""
    buildah = shutil.which("buildah")
    if buildah is None:
        skipped(NAME, "no buildah on PATH", "apt-get install buildah")
    if os.geteuid() != 0:
        skipped(NAME, "not root", "run the tests as root, e.g. in a container")
    program = folder / "bin/buildah"
    program.parent.mkdir(parents=True)
    storage = f"--storage-driver vfs --root {folder}/images --runroot {folder}/run"
    program.write_text(f'#!/bin/sh\nexport BUILDAH_ISOLATION=chroot\nexec {buildah} {storage} "$@"\n')
    program.chmod(0o755)
    builder = ImageBuilder(program, folder)
    _make_base(builder)
    container = builder.run("from", BASE).strip()
    tried = subprocess.run([program, "run", container, "/bin/sh", "-c", "python3 -V"], capture_output=True, check=False)
    if tried.returncode != 0:
        skipped(NAME, f"cannot run commands: {tried.stderr.decode()[-200:].strip()}", "give the container SYS_ADMIN")
    ran(NAME)
    return builder


def _make_base(builder: ImageBuilder) -> None:
    """The interpreter with its standard library, a shell, and the libraries that they need."""
    root = builder.folder / "base"
    interpreter = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    target = root / library.relative_to("/")
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_UNUSED), symlinks=True)
    programs = [interpreter, *(Path(str(shutil.which(name))) for name in _PROGRAMS)]
    for path in {*programs, *_libraries([*programs, *target.glob("lib-dynload/*.so")])}:
        copy = root / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    for name, path in (*zip(_PROGRAMS, programs[1:], strict=True), ("python3", interpreter)):
        link = root / "bin" / name
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(path)
    (builder.folder / "Dockerfile").write_text("FROM scratch\nCOPY base /\n")
    builder.run("build", "--quiet", "--tag", BASE, str(builder.folder))


def _libraries(programs: list[Path]) -> Iterator[Path]:
    """Shared libraries of programs, and the loader."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    for word in said.split():
        if word.startswith("/") and not word.endswith(":"):
            yield Path(word)
