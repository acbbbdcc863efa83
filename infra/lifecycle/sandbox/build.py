"""Build the programs of the control plane from their pinned modules, once a version, into a cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.errors import RefusedError, StackError
from infra.lifecycle.sandbox.programs import MODULES, SOURCES, cache_folder, go_version, kubernetes_version

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""Packages whose variables say which Kubernetes a program is; unstamped, clients take it for v0.0.0."""


def build(environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
    """Build what is not there yet.

    Of two that build at once the second waits for the first. The folder appears when everything in it is complete.

    Args:
        environment: says where the cache is (`programs.cache_folder`) and where Go is (PATH).
        say: shows a line of progress.

    Returns:
        the folder with the programs.

    Raises:
        RefusedError: there is no Go.
        StackError: Go failed; with what it said.
    """
    folder = cache_folder(environment)
    if folder.is_dir():
        return folder
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise RefusedError(
            "the control plane's programs are built with Go, and there is no `go` on PATH",
            remedy=f"install Go {go_version()} or newer (https://go.dev/doc/install, or apt-get install golang-go), "
            "or set KUBEBUILDER_ASSETS to a folder that has the programs",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _build_all(go, folder, say)
    return folder


def _build_all(go: str, folder: Path, say: Callable[[str], None]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir()
    say(f"building Kubernetes {kubernetes_version()} into {folder}: about 8 minutes on 2 cores, the first time")
    started = time.monotonic()
    for number, program in enumerate(SOURCES, 1):
        say(f"{number} of {len(SOURCES)}: {program}")
        _build_one(go, program, partial / program)
        say(f"{number} of {len(SOURCES)}: {program} is there after {time.monotonic() - started:.0f} s")
    partial.rename(folder)


def _build_one(go: str, program: str, output: Path) -> None:
    source = SOURCES[program]
    command = [go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", _link_flags()]
    done = subprocess.run(
        [*command, "-o", str(output), source.package],
        cwd=MODULES / source.module,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(
            f"go could not build {program} ({source.package}):\n{done.stderr[-2000:].strip()}",
            remedy="see that the Go module proxy can be reached (go env GOPROXY) and that 3 GB are free",
        )


def _link_flags() -> str:
    """Without symbols; with Kubernetes's version, which `git describe` would give in a checkout of it."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = (f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items())
    return " ".join(("-s -w", *stamps))
