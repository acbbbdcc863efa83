"""A real engine that builds images without a registry: buildah, with the base image that stands in where none can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from infra.lifecycle.image.engines import Buildah
from infra.lifecycle.sandbox.images.stand_in import stand_in
from tests.engines.report_table import ran, skipped

NAME = "buildah"


@dataclass(frozen=True)
class ImageBuilder:
    """An engine with storage of its own.

    Attributes:
        program: path of a program `buildah`, which uses that storage.
        folder: its folder.
        base: reference of the base image.
    """

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
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    builder = ImageBuilder(program, folder, stand_in(Buildah(str(program)), python=python, say=print))
    container = builder.run("from", builder.base).strip()
    tried = subprocess.run([program, "run", container, "/bin/sh", "-c", "python3 -V"], capture_output=True, check=False)
    if tried.returncode != 0:
        skipped(NAME, f"cannot run commands: {tried.stderr.decode()[-200:].strip()}", "give the container SYS_ADMIN")
    ran(NAME)
    return builder
