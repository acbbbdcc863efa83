"""Fill the engines cache from the pinned Go modules: CRDs, the control plane's programs, the operators."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from infra.lifecycle.sandbox.modules import (
    KUBERNETES,
    MODULES,
    MONITORING_MODULES,
    NODE_MODULES,
    PREVIOUS_MODULES,
    Module,
    build_lock,
    cache_root,
    newest_go,
)
from infra.spec.errors import PlatformError, RefusedError

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""Packages whose variables hold the Kubernetes version; unset, clients read v0.0.0."""


def build(environment: Mapping[str, str], *, say: Callable[[str], None], has_real_nodes: bool = False) -> Path:
    """Build the programs and copy the CRDs that the cache lacks.

    One build runs at a time; a second one waits for it. Each file appears in the cache when it is complete. CRDs come
    first, because they take seconds; operators come last, so that one that fails to build leaves a control plane. Earlier
    versions come after all that runs here, and the servers of the monitoring tests after these.

    Args:
        environment: determines the cache (`modules.cache_root`) and, by PATH, Go.
        say: prints a line of progress.
        has_real_nodes: build the programs of real nodes too, last.

    Returns:
        the cache.

    Raises:
        RefusedError: Go is not installed.
        PlatformError: Go failed; carries its output.
    """
    root = cache_root(environment)
    groups = (MODULES, PREVIOUS_MODULES, MONITORING_MODULES, *((NODE_MODULES,) if has_real_nodes else ()))
    modules = tuple(chain.from_iterable(groups))
    if not (_missing_crds(modules, environment) or _missing_programs(modules, environment)):
        return root
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise RefusedError(
            "make engines needs Go, and there is no `go` on PATH",
            remedy=f"install Go {newest_go(modules)} or newer (https://go.dev/doc/install, or apt-get install golang-go), "
            "or set KUBEBUILDER_ASSETS to a folder with the control plane's programs",
        )
    root.mkdir(parents=True, exist_ok=True)
    with build_lock(environment).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for group in groups:
            _fill(go, group, environment, say=say)
    return root


def _fill(go: str, modules: Sequence[Module], environment: Mapping[str, str], *, say: Callable[[str], None]) -> None:
    for module in _missing_crds(modules, environment):
        _copy_crds(go, module, module.crd_folder(environment))
        say(f"{module.title} {module.release}: copied the CRDs")
    for module, program in _missing_programs(modules, environment):
        say(f"{module.title} {module.release}: building {program}")
        started = time.monotonic()
        _build_program(go, module, module.cache_folder(environment) / program)
        say(f"{module.title} {module.release}: built {program} in {time.monotonic() - started:.0f} s")


def _missing_crds(modules: Sequence[Module], environment: Mapping[str, str]) -> list[Module]:
    return [module for module in modules if module.crds and not module.crd_folder(environment).is_dir()]


def _missing_programs(modules: Sequence[Module], environment: Mapping[str, str]) -> list[tuple[Module, str]]:
    return [
        (module, program)
        for module in modules
        for program in module.packages
        if not (module.cache_folder(environment) / program).is_file()
    ]


def _copy_crds(go: str, module: Module, folder: Path) -> None:
    source = Path(json.loads(_run(go, module, "mod", "download", "-json", module.project))["Dir"])
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    for file in (file for pattern in module.crds for file in source.glob(pattern)):
        shutil.copyfile(file, partial / file.name)  # without its mode: Go's module cache is read-only
    partial.rename(folder)


def _build_program(go: str, module: Module, program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{program.name}.partial")
    partial.unlink(missing_ok=True)  # Go overwrites no file that it cannot recognise as a program
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", _link_flags(module)]
    if module.tags:
        flags += ["-tags", ",".join(module.tags)]
    with _completed(go, module) as replacing:
        _run(go, module, "build", *flags, *replacing, "-o", str(partial), module.packages[program.name])
    partial.rename(program)


@contextmanager
def _completed(go: str, module: Module) -> Iterator[list[str]]:
    """Flags that build with a copy of the project which has the stand-ins; none if it needs none. Go's module cache is read-only."""
    if not module.stand_ins:
        yield []
        return
    published = Path(json.loads(_run(go, module, "mod", "download", "-json", module.project))["Dir"])
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        shutil.copytree(published, project, copy_function=shutil.copyfile)
        for missing, source in module.stand_ins.items():
            file = project / missing
            file.parent.mkdir(parents=True)
            shutil.copyfile(project / source, file)
        requirements = (module.folder / "go.mod").read_text(encoding="utf-8")
        changed = Path(folder, "go.mod")
        changed.write_text(f"{requirements}\nreplace {module.project} => {project}\n", encoding="utf-8")
        shutil.copyfile(module.folder / "go.sum", changed.with_name("go.sum"))
        yield ["-modfile", str(changed)]


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
            f"go {arguments[0]} failed for {module.title} ({arguments[-1]}):\n{(done.stderr + done.stdout)[-2000:].strip()}",
            remedy="check that the Go module proxy is reachable (go env GOPROXY) and that 3 GB of disk are free",
        )
    return done.stdout.strip()


def _link_flags(module: Module) -> str:
    """Linker flags: no symbols, and the version, which for Kubernetes its own build takes from `git describe`."""
    if module.project != KUBERNETES.project:
        return f"-s -w -X {module.version_variable}={module.release}" if module.version_variable else "-s -w"
    major, minor, _ = module.version.split(".")
    values = {"gitVersion": f"v{module.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = (f"-X {package}.{name}={value}" for package in _STAMPED for name, value in values.items())
    return " ".join(("-s -w", *stamps))
