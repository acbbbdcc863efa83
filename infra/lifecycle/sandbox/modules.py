"""The Go modules that pin the programs and CRDs of a sandbox, and the cache that `make engines` fills from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_FOLDER = Path(__file__).with_name("engines")
_PROMETHEUS_VERSION = "github.com/prometheus/common/version.Version"


@dataclass(frozen=True, kw_only=True, eq=False)
class Module:
    """A Go module of ours that requires one version of an upstream project.

    Attributes:
        name: its folder in `engines`.
        title: the project's name in messages.
        project: Go module path of the project.
        packages: the programs to build: Go package of the main function, by program name.
        crds: glob patterns of the CRD files in the project.
        variable: environment variable with the path of an operator's program, which takes precedence over the built one.
            None: the module is no operator.
        stand_ins: files that the project's releases build and its Go module lacks, each with the file of the module that is taken instead.
        version_variable: Go variable that holds the version which the programs report; empty if the build sets none.
        tags: build tags, which choose parts of the project.
        has_major_in_minor: the hundreds of the Go module's minor version are the release's major version.
    """

    name: str
    title: str
    project: str
    packages: Mapping[str, str] = field(default_factory=dict)
    crds: tuple[str, ...] = ()
    variable: str | None = None
    version_variable: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    has_major_in_minor: bool = False

    @property
    def folder(self) -> Path:
        """Folder of its `go.mod`."""
        return _FOLDER / self.name

    @cached_property
    def version(self) -> str:
        """The pinned version of the project's Go module, e.g. `1.35.4`."""
        return self._line(rf"(?:require)?\s*{re.escape(self.project)} v(\S+)(?: // indirect)?")

    @property
    def release(self) -> str:
        """The version of the project's release, which for most is the Go module's; for 0.314.0 of Prometheus it is 3.14.0."""
        if not self.has_major_in_minor:
            return self.version
        _, minor, patch = self.version.split(".")
        return f"{int(minor) // 100}.{int(minor) % 100}.{patch}"

    @cached_property
    def go_version(self) -> str:
        """The lowest Go version that builds it, e.g. `1.26.0`."""
        return self._line(r"go (\S+)")

    def cache_folder(self, environment: Mapping[str, str]) -> Path:
        """Folder of its programs and CRDs in the cache; a change of `go.mod` or `go.sum` gets a new one.

        Args:
            environment: see `cache_root`.
        """
        digest = hashlib.sha256()
        for file in (self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("*/*.go"))):
            digest.update(file.read_bytes())
        return cache_root(environment) / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def crd_folder(self, environment: Mapping[str, str]) -> Path:
        """Folder of its CRDs in the cache; there once they are complete.

        Args:
            environment: see `cache_root`.
        """
        return self.cache_folder(environment) / "crds"

    def _line(self, pattern: str) -> str:
        found = re.search(rf"^{pattern}$", (self.folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, f"{self.folder}/go.mod has no line {pattern}"
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
    title="KubeRay operator",
    project="github.com/ray-project/kuberay/ray-operator",
    packages={"kuberay-operator": "github.com/ray-project/kuberay/ray-operator"},
    crds=("config/crd/bases/*.yaml",),
    variable="KUBERAY_OPERATOR",
)
PREVIOUS_KUBERAY = Module(
    name="kuberay-previous",
    title="Previous KubeRay operator",
    project=KUBERAY.project,
    packages=KUBERAY.packages,
    crds=KUBERAY.crds,
)
"""The operator of the minor before, from which the tests upgrade a cluster; no sandbox runs it."""

KUEUE = Module(
    name="kueue",
    title="Kueue",
    project="sigs.k8s.io/kueue",
    packages={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    crds=("config/components/crd/bases/*.yaml",),
    variable="KUEUE_CONTROLLER",
)
PROMETHEUS_OPERATOR = Module(
    name="prometheus-operator",
    title="Prometheus Operator",
    project="github.com/prometheus-operator/prometheus-operator",
    # The other six describe servers; they would add a third to the start of a control plane, and nothing here uses them.
    crds=tuple(f"example/prometheus-operator-crd/*{kind}.yaml" for kind in ("monitors", "probes", "rules")),
)

REGISTRY = Module(
    name="registry",
    title="OCI registry",
    project="github.com/distribution/distribution/v3",
    packages={"registry": "github.com/distribution/distribution/v3/cmd/registry"},
)
"""For a sandbox with real nodes, whose containerd pulls from it, and for the tests of `promote`."""

KUBELET = Module(
    name="kubelet",
    title="Kubernetes",
    project="k8s.io/kubernetes",
    packages={"kubelet": "k8s.io/kubernetes/cmd/kubelet", "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"},
)
"""The programs of a real node, of the control plane's version; apart from it, so that a change of one builds only one again."""

COREDNS = Module(
    name="node",
    title="CoreDNS",
    project="github.com/coredns/coredns",
    packages={
        program: f"ray-train-platform/engines/node/{program}" for program in ("coredns", "device-plugin", "pause")
    },
)
"""CoreDNS, and small programs of ours, for real nodes."""

ALERTMANAGER = Module(
    name="alertmanager",
    title="Alertmanager",
    project="github.com/prometheus/alertmanager",
    packages={program: f"github.com/prometheus/alertmanager/cmd/{program}" for program in ("amtool", "alertmanager")},
    version_variable=_PROMETHEUS_VERSION,
    stand_ins={"ui/app/dist/index.html": "ui/app/index.html"},
)
"""Built without its web UI, which the Go module has as sources only."""

PROMETHEUS = Module(
    name="prometheus",
    title="Prometheus",
    project="github.com/prometheus/prometheus",
    packages={program: f"github.com/prometheus/prometheus/cmd/{program}" for program in ("promtool", "prometheus")},
    version_variable=_PROMETHEUS_VERSION,
    tags=("remove_all_sd", "enable_kubernetes_sd"),
    has_major_in_minor=True,
)
"""Built without its web UI, which the Go module lacks, and without the discovery of services in clouds, a fifth of its packages."""

MONITORING_MODULES = (ALERTMANAGER, PROMETHEUS)
"""Servers that the tests of monitoring use, of the release's versions; `engines` builds them after the earlier versions."""

NODE_MODULES = (KUBELET, COREDNS)
"""Modules of real nodes; only `engines --real` builds them."""

MODULES = (KUBERNETES, KWOK, KUBERAY, KUEUE, PROMETHEUS_OPERATOR, REGISTRY)
"""The modules of sandbox and tests that `engines` builds, in build order."""

PREVIOUS_MODULES = (PREVIOUS_KUBERAY,)
"""Earlier versions for the tests of upgrades; `engines` builds them after the others."""

CRD_MODULES = tuple(module for module in MODULES if module.crds)
"""Modules whose CRDs a control plane has."""

OPERATORS = tuple(module for module in MODULES if module.variable is not None)
"""Modules of operators; a control plane runs without them."""


def cache_root(environment: Mapping[str, str]) -> Path:
    """The cache of all modules.

    Args:
        environment: `RTP_ENGINES` is the path; without it, `ray-train-platform/engines` in `XDG_CACHE_HOME` or `~/.cache`.
    """
    root = environment.get("RTP_ENGINES")
    if root is None:
        home = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        root = str(home / "ray-train-platform" / "engines")
    return Path(root).resolve()


def build_lock(environment: Mapping[str, str]) -> Path:
    """The file that a running build holds locked (flock).

    Args:
        environment: see `cache_root`.
    """
    return cache_root(environment) / "lock"


def newest_go(modules: Iterable[Module] = MODULES) -> str:
    """The lowest Go version that builds all modules, e.g. `1.26.0`."""
    return max(
        (module.go_version for module in modules), key=lambda version: [int(part) for part in version.split(".")]
    )
