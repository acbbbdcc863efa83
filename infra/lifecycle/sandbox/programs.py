"""The programs of a control plane: which ones, of which version, and where they lie on this machine."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from infra.errors import RefusedError

MODULES = Path(__file__).with_name("engines")
"""Folder of the Go modules that pin the programs, one folder a module."""

Programs = Mapping[str, Path]
"""Where each program of `SOURCES` lies, by its name."""


class Source(NamedTuple):
    """What a program is built from.

    Attributes:
        module: folder in `MODULES`.
        package: Go package of its main function.
    """

    module: str
    package: str


SOURCES: Mapping[str, Source] = {
    "etcd": Source("kubernetes", "go.etcd.io/etcd/server/v3"),
    "kwok": Source("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "kube-scheduler": Source("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": Source("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-apiserver": Source("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
}
"""Every program by its name."""

REMEDY = "build them once with the Go toolchain, about 8 minutes on 2 cores: make engines"


@cache
def kubernetes_version() -> str:
    """The pinned version of Kubernetes, e.g. `1.35.4`."""
    found = re.search(
        r"^\s*k8s\.io/kubernetes v(\S+)(?: // indirect)?$", _module_file("kubernetes").read_text(), re.MULTILINE
    )
    assert found is not None, "engines/kubernetes/go.mod requires k8s.io/kubernetes"
    return found[1]


@cache
def go_version() -> str:
    """The lowest version of Go that builds every module, e.g. `1.26.0`."""
    lines = (re.search(r"^go (\S+)$", _module_file(module).read_text(), re.MULTILINE) for module in _modules())
    versions = [line[1] for line in lines if line is not None]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where the built programs lie: a folder for each version, and for each change of what they are built from.

    Args:
        environment: `RTP_ENGINES` names the folder above it, else `XDG_CACHE_HOME` does, else the home folder.
    """
    root = environment.get("RTP_ENGINES")
    if root is None:
        home = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        root = str(home / "ray-train-platform" / "engines")
    digest = hashlib.sha256()
    for module in _modules():
        digest.update(_module_file(module).read_bytes())
        digest.update((MODULES / module / "go.sum").read_bytes())
    return Path(root).resolve() / f"{kubernetes_version()}-{digest.hexdigest()[:12]}"


def find(environment: Mapping[str, str]) -> Programs:
    """Every program: from `$KUBEBUILDER_ASSETS`, else from PATH, else from the cache that `make engines` fills.

    Raises:
        RefusedError: names the programs that are in none of them, and the ones there of another minor version.
    """
    found: dict[str, Path] = {}
    reasons: list[str] = []
    for program in SOURCES:
        for candidate in _candidates(program, environment):
            complaint = _complaint(program, candidate, environment)
            if complaint is None:
                found[program] = candidate
                break
            reasons.append(complaint)
    missing = sorted(set(SOURCES) - set(found))
    if missing:
        looked = f"$KUBEBUILDER_ASSETS, PATH and {cache_folder(environment)}"
        notes = "".join(f"\n  {reason}" for reason in reasons)
        raise RefusedError(f"{', '.join(missing)}: not in {looked}{notes}", remedy=REMEDY)
    return found


def _candidates(program: str, environment: Mapping[str, str]) -> Iterator[Path]:
    assets = environment.get("KUBEBUILDER_ASSETS")
    places = [shutil.which(program, path=assets)] if assets else []
    places.append(shutil.which(program, path=environment.get("PATH", "")))
    places.append(shutil.which(program, path=str(cache_folder(environment))))
    return (Path(place) for place in places if place is not None)


def _complaint(program: str, candidate: Path, environment: Mapping[str, str]) -> str | None:
    """Why a program is passed over: the API of another minor version of Kubernetes is another API."""
    if not program.startswith("kube-") or candidate.parent == cache_folder(environment):
        return None
    minor = kubernetes_version().rpartition(".")[0]
    said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return None if said.startswith(f"Kubernetes v{minor}.") else f"{candidate} is {said or 'broken'}, not {minor}"


def _modules() -> list[str]:
    return sorted({source.module for source in SOURCES.values()})


def _module_file(module: str) -> Path:
    return MODULES / module / "go.mod"
