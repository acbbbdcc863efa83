"""A real engine that builds images without a registry: buildah, with the base image that stands in where none can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from infra.lifecycle.image.engines import Buildah
from infra.lifecycle.sandbox.images.stand_in import stand_in
from tests.engines.report_table import ran, skipped

NAME = "buildah"


@dataclass(frozen=True)
class ImageBuilder:
    """An engine with storage of its own."""

    program: Path
    folder: Path
    base: str = ""

    @property
    def engine(self) -> Buildah:
        """The engine, as `make image` uses it."""
        return Buildah(str(self.program))

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


@contextmanager
def image_builder(folder: Path) -> Iterator[ImageBuilder]:
    """An engine with the base image; skips if there is none, or if it cannot run commands here."""
    builder = _engine(folder)
    try:
        yield _with_base(builder)
    finally:
        subprocess.run([builder.program, "rm", "--all"], capture_output=True, check=True)
        # The driver `overlay` keeps its folder mounted.
        subprocess.run(["umount", folder / "overlay/overlay"], capture_output=True, check=False)


def _engine(folder: Path) -> ImageBuilder:
    buildah = shutil.which("buildah")
    if buildah is None:
        skipped(NAME, "no buildah on PATH", "apt-get install buildah")
    if os.geteuid() != 0:
        skipped(NAME, "not root", "run the tests as root, e.g. in a container")
    program = folder / "bin/buildah"
    program.parent.mkdir(parents=True)
    for driver in ("overlay", "vfs"):  # the second copies every layer, and works on every file system
        storage = f"--storage-driver {driver} --root {folder}/{driver} --runroot {folder}/run"
        program.write_text(f'#!/bin/sh\nexport BUILDAH_ISOLATION=chroot\nexec {buildah} {storage} "$@"\n')
        program.chmod(0o755)
        if subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0:
            break
    return ImageBuilder(program, folder)


def _with_base(engine: ImageBuilder) -> ImageBuilder:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    builder = replace(engine, base=stand_in(engine.engine, python=python, say=print))
    container = builder.run("from", builder.base).strip()
    tried = subprocess.run(
        [builder.program, "run", container, "/bin/sh", "-c", "python3 -V"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        skipped(NAME, f"cannot run commands: {tried.stderr.decode()[-200:].strip()}", "give the container SYS_ADMIN")
    ran(NAME)
    return builder
