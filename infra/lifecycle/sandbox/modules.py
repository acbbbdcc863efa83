"""The Go modules that pin the programs of a control plane and its operators, and where each one's builds are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FOLDER = Path(__file__).with_name("engines")


@dataclass(frozen=True, kw_only=True, eq=False)
class Module:
    """A Go module of ours that requires a project at one version, and builds programs of it.

    Attributes:
        name: its folder in `engines`.
        title: what people call the project.
        project: Go module whose version is the engine's.
        packages: Go package of the main function, by program.
        definitions: folder of the project with its custom resource definitions; None: it has none.
        variable: environment variable that names its only program, before the one that is built here; None: it is a part
            of the control plane, which does not run without it.
    """

    name: str
    title: str
    project: str
    packages: Mapping[str, str]
    definitions: str | None = None
    variable: str | None = None

    @property
    def folder(self) -> Path:
        """Where its `go.mod` is."""
        return _FOLDER / self.name

    @cached_property
    def version(self) -> str:
        """The pinned version of the project, e.g. `1.35.4`."""
        return self._line(rf"\s*{re.escape(self.project)} v(\S+)(?: // indirect)?")

    @cached_property
    def go_version(self) -> str:
        """The lowest version of Go that builds it, e.g. `1.26.0`."""
        return self._line(r"go (\S+)")

    def cache_folder(self, environment: Mapping[str, str]) -> Path:
        """Where its built programs lie: a folder for each version, and for each change of what they are built from.

        Args:
            environment: see `cache_root`.
        """
        digest = hashlib.sha256()
        for file in ("go.mod", "go.sum"):
            digest.update((self.folder / file).read_bytes())
        return cache_root(environment) / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def _line(self, pattern: str) -> str:
        found = re.search(rf"^{pattern}$", (self.folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, f"{self.folder}/go.mod has a line {pattern}"
        return found[1]


KUBERNETES = Module(
    name="kubernetes",
    title="Kubernetes",
    project="k8s.io/kubernetes",
    packages={
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    },
)
KWOK = Module(name="kwok", title="kwok", project="sigs.k8s.io/kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
KUBERAY = Module(
    name="kuberay",
    title="KubeRay's operator",
    project="github.com/ray-project/kuberay/ray-operator",
    packages={"kuberay-operator": "github.com/ray-project/kuberay/ray-operator"},
    definitions="config/crd/bases",
    variable="KUBERAY_OPERATOR",
)
KUEUE = Module(
    name="kueue",
    title="Kueue",
    project="sigs.k8s.io/kueue",
    packages={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    definitions="config/components/crd/bases",
    variable="KUEUE_CONTROLLER",
)

MODULES = (KUBERNETES, KWOK, KUBERAY, KUEUE)
"""Every module, in the order in which they are built."""

OPERATORS = tuple(module for module in MODULES if module.variable is not None)
"""Modules without which a control plane runs."""


DEFINITIONS = "crds"
"""Folder with an operator's custom resource definitions, beside its program."""


def cache_root(environment: Mapping[str, str]) -> Path:
    """The folder above every module's builds.

    Args:
        environment: `RTP_ENGINES` names it, else it is in `XDG_CACHE_HOME`, else in the home folder.
    """
    root = environment.get("RTP_ENGINES")
    if root is None:
        home = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        root = str(home / "ray-train-platform" / "engines")
    return Path(root).resolve()


def build_lock(environment: Mapping[str, str]) -> Path:
    """The file that whoever builds modules holds locked (flock).

    Args:
        environment: see `cache_root`.
    """
    return cache_root(environment) / "lock"


def newest_go(modules: Iterable[Module] = MODULES) -> str:
    """The lowest version of Go that builds all of them, e.g. `1.26.0`."""
    return max(
        (module.go_version for module in modules), key=lambda version: [int(part) for part in version.split(".")]
    )
