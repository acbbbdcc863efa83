"""Build the programs of the control plane and its operators from their pinned modules, once a version, into a cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.lifecycle.sandbox.modules import DEFINITIONS, KUBERNETES, MODULES, Module, build_lock, cache_root, newest_go
from infra.spec.errors import PlatformError, RefusedError

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""Packages whose variables say which Kubernetes a program is; unstamped, clients take it for v0.0.0."""


def build(environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
    """Build the modules that are not there yet.

    Of two that build at once the second waits for the first. A module's folder appears when everything in it is
    complete; an operator that cannot be built costs nobody the control plane, which is built first.

    Args:
        environment: says where the cache is (`modules.cache_root`) and where Go is (PATH).
        say: shows a line of progress.

    Returns:
        the folder above the modules'.

    Raises:
        RefusedError: there is no Go.
        PlatformError: Go failed; with what it said.
    """
    root = cache_root(environment)
    if not _missing(environment):
        return root
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise RefusedError(
            "the control plane's programs are built with Go, and there is no `go` on PATH",
            remedy=f"install Go {newest_go()} or newer (https://go.dev/doc/install, or apt-get install golang-go), "
            "or set KUBEBUILDER_ASSETS to a folder that has the programs",
        )
    root.mkdir(parents=True, exist_ok=True)
    with build_lock(environment).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for module in _missing(environment):
            _build_module(go, module, module.cache_folder(environment), say)
    return root


def _missing(environment: Mapping[str, str]) -> list[Module]:
    return [module for module in MODULES if not module.cache_folder(environment).is_dir()]


def _build_module(go: str, module: Module, folder: Path, say: Callable[[str], None]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir()
    started = time.monotonic()
    for program, package in module.packages.items():
        say(f"{module.title} {module.version}: building {program}")
        flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", _link_flags(module)]
        _run(go, module, "build", *flags, "-o", str(partial / program), package)
    if module.definitions is not None:
        source = _run(go, module, "list", "-m", "-f", "{{.Dir}}", module.project)
        shutil.copytree(Path(source) / module.definitions, partial / DEFINITIONS, copy_function=shutil.copyfile)
        (partial / DEFINITIONS).chmod(0o755)  # the module cache's folders are read-only
    partial.rename(folder)
    say(f"{module.title} {module.version} is there after {time.monotonic() - started:.0f} s")


def _run(go: str, module: Module, *arguments: str) -> str:
    done = subprocess.run(
        [go, *arguments],
        cwd=module.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PlatformError(
            f"go {arguments[0]} failed for {module.title} ({arguments[-1]}):\n{done.stderr[-2000:].strip()}",
            remedy="see that the Go module proxy can be reached (go env GOPROXY) and that 3 GB are free",
        )
    return done.stdout.strip()


def _link_flags(module: Module) -> str:
    """Without symbols; Kubernetes with its version, which `git describe` would give in a checkout of it."""
    if module is not KUBERNETES:
        return "-s -w"
    major, minor, _ = module.version.split(".")
    values = {"gitVersion": f"v{module.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = (f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items())
    return " ".join(("-s -w", *stamps))
