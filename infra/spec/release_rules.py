"""Rules on the versions of a release: one function per rule, named as a sentence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Project:
    """Versions in the project's files, which the manifest must match.

    Attributes:
        requires_python: range of Python versions the project supports.
        locked: version of every package in requirements.lock, by normalised name.
    """

    requires_python: str
    locked: Mapping[str, str]


def read_project(root: Path = ROOT) -> Project:
    """Read pyproject.toml and requirements.lock.

    Raises:
        SettingsError: one of the files does not exist.
    """
    for name in ("pyproject.toml", "requirements.lock"):
        if not (root / name).is_file():
            raise SettingsError(f"{root / name}: no such file")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", lock, flags=re.MULTILINE))
    return Project(requires_python=project["requires-python"], locked=locked)


class Finding(NamedTuple):
    """A broken rule, and how it is broken."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True)
class _Case:
    release: ReleaseManifest
    project: Project


Rule = Callable[[_Case], Iterator[str]]


def _minor(version: str) -> str:
    parsed = Version(version.partition("-")[0])
    return f"{parsed.major}.{parsed.minor}"


def our_images_have_the_platforms_version(case: _Case) -> Iterator[str]:
    """The tags of our own images begin with `platform`."""
    for name, image in case.release.images.items():
        if (
            image.is_ours
            and image.tag != case.release.platform
            and not image.tag.startswith(f"{case.release.platform}-")
        ):
            yield f"images.{name}.tag is {image.tag}, platform is {case.release.platform}"


def the_lock_matches_the_stack(case: _Case) -> Iterator[str]:
    """Ray, torch, MLflow and CUDA equal those of requirements.lock, which client and image install."""
    stack, locked = case.release.stack, case.project.locked
    for name in ("ray", "torch", "mlflow"):
        if getattr(stack, name) != locked.get(name):
            yield f"stack.{name} is {getattr(stack, name)}, requirements.lock has {locked.get(name)}"
    toolkit = locked.get("cuda-toolkit", "0.0")
    if _minor(toolkit) != stack.cuda:
        yield f"stack.cuda is {stack.cuda}, requirements.lock has cuda-toolkit {toolkit}"


def images_match_the_stack(case: _Case) -> Iterator[str]:
    """The package versions recorded in our images equal the stack's: Ray refuses a client of another version."""
    for name, image in case.release.images.items():
        for package, inside in image.contains.items():
            wanted = getattr(case.release.stack, package, None)
            if inside != wanted:
                yield f"images.{name} contains {package} {inside}, stack.{package} is {wanted}"


def the_project_supports_the_images_python(case: _Case) -> Iterator[str]:
    """The project supports the image's Python."""
    if f"{case.release.stack.python}.0" not in SpecifierSet(case.project.requires_python):
        yield f"stack.python is {case.release.stack.python}, the project supports {case.project.requires_python}"


def the_base_image_has_the_stacks_python(case: _Case) -> Iterator[str]:
    """Our images are built on the stack's Python."""
    base = case.release.images.get("python-base")
    if base is not None and not base.tag.startswith(f"{case.release.stack.python}-"):
        yield f"images.python-base.tag is {base.tag}, stack.python is {case.release.stack.python}"


def the_driver_supports_cuda(case: _Case) -> Iterator[str]:
    """The AMI's driver branch supports the CUDA major that torch was built for."""
    cuda, driver = case.release.stack.cuda, case.release.node_image.nvidia_driver
    lowest = case.release.compatibility.driver_for_cuda.get(cuda.partition(".")[0])
    if lowest is None:
        yield f"compatibility.driver_for_cuda has no entry for CUDA {cuda}"
    elif Version(driver) < Version(lowest):
        yield f"CUDA {cuda} needs driver {lowest} or newer, node_image.nvidia_driver is {driver}"


def kuberay_crds_match_the_operator(case: _Case) -> Iterator[str]:
    """The CRDs have the operator's version: with older CRDs, a newer operator deleted workers."""
    chart, crds = case.release.charts["kuberay-operator"].version, case.release.crds.get("kuberay")
    if chart != crds:
        yield f"crds.kuberay is {crds}, the operator's chart is {chart}"


def kuberay_supports_ray(case: _Case) -> Iterator[str]:
    """Ray is in the range that the operator supports."""
    ray, supported = case.release.stack.ray, case.release.compatibility.ray_for_kuberay
    if ray not in SpecifierSet(supported):
        yield f"stack.ray is {ray}, KubeRay supports {supported}"


def the_minor_is_supported(case: _Case) -> Iterator[str]:
    """The release supports the control plane's minor."""
    kubernetes = case.release.kubernetes
    if kubernetes.version not in kubernetes.supported:
        yield f"kubernetes.version is {kubernetes.version}, kubernetes.supported is {', '.join(kubernetes.supported)}"


def node_images_match_the_minor(case: _Case) -> Iterator[str]:
    """AMIs are built for the control plane's minor."""
    for ami, version in case.release.node_image.releases.items():
        if version is not None and _minor(version) != case.release.kubernetes.version:
            yield f"node_image.releases.{ami} is {version}, kubernetes.version is {case.release.kubernetes.version}"


def addons_support_the_minor(case: _Case) -> Iterator[str]:
    """Every add-on supports the control plane's minor, and has its minimum version."""
    minor = case.release.kubernetes.version
    for name, addon in case.release.addons.items():
        if addon.kubernetes is not None and minor not in SpecifierSet(addon.kubernetes):
            yield f"addons.{name} supports Kubernetes {addon.kubernetes}, kubernetes.version is {minor}"
        if addon.version is None:
            continue
        version = addon.version.removeprefix("v")
        if addon.is_kubernetes_version and _minor(version) != minor:
            yield f"addons.{name}.version is {addon.version}, its minor must be {minor}"
        if addon.minimum is not None and Version(version.partition("-")[0]) < Version(addon.minimum):
            yield f"addons.{name}.version is {addon.version}, must be {addon.minimum} or newer"


def charts_support_the_minor(case: _Case) -> Iterator[str]:
    """Every chart's kubeVersion includes the control plane's minor, and the autoscaler has that minor."""
    minor = case.release.kubernetes.version
    for name, chart in case.release.charts.items():
        if chart.kubernetes is not None and minor not in SpecifierSet(chart.kubernetes):
            yield f"charts.{name} needs Kubernetes {chart.kubernetes}, kubernetes.version is {minor}"
        if chart.is_kubernetes_version and (chart.app_version is None or _minor(chart.app_version) != minor):
            yield f"charts.{name}.app_version is {chart.app_version}, its minor must be {minor}"


def images_match_their_charts(case: _Case) -> Iterator[str]:
    """An image that a chart installs has the chart's appVersion."""
    for name, image in case.release.images.items():
        if image.chart is None:
            continue
        chart = case.release.charts.get(image.chart)
        if chart is None:
            yield f"images.{name}.chart is {image.chart}, which charts does not list"
        elif image.tag.removeprefix("v") != (wanted := (chart.app_version or chart.version or "").removeprefix("v")):
            yield f"images.{name}.tag is {image.tag}, chart {image.chart} installs {wanted}"


RULES: tuple[Rule, ...] = (
    our_images_have_the_platforms_version,
    the_lock_matches_the_stack,
    images_match_the_stack,
    the_project_supports_the_images_python,
    the_base_image_has_the_stacks_python,
    the_driver_supports_cuda,
    kuberay_crds_match_the_operator,
    kuberay_supports_ray,
    the_minor_is_supported,
    node_images_match_the_minor,
    addons_support_the_minor,
    charts_support_the_minor,
    images_match_their_charts,
)


def findings(release: ReleaseManifest, *, project: Project) -> tuple[Finding, ...]:
    """Every broken rule, in the order of `RULES`."""
    case = _Case(release, project)
    return tuple(Finding(rule.__name__, message) for rule in RULES for message in rule(case))


def check_release(
    release: ReleaseManifest, *, kind: EnvironmentKind, project: Project, needs_our_images: bool = True
) -> None:
    """Refuse a release whose versions do not fit together, and in prod also one with unresolved entries.

    Args:
        release: the release manifest.
        kind: kind of the environment.
        project: versions in the project's files.
        needs_our_images: whether the digests of our own images, which are pushed after the repositories exist, count.

    Raises:
        RefusedError: lists every broken rule, or every unresolved entry.
    """
    broken = findings(release, project=project)
    if broken:
        lines = "".join(f"\n  {finding}" for finding in broken)
        raise RefusedError(
            f"the versions of release {release.platform} do not fit together:{lines}",
            remedy="correct infra/spec/release.yaml",
        )
    ours = {f"images.{name}.digest" for name, image in release.images.items() if image.is_ours}
    pushed_later = frozenset[str]() if needs_our_images else ours
    unresolved = [name for name in release.unresolved() if name not in pushed_later]
    if unresolved and kind is EnvironmentKind.PROD:
        lines = "".join(f"\n  {name}" for name in unresolved)
        raise RefusedError(
            f"release {release.platform} has {len(unresolved)} unresolved entries, which prod refuses:{lines}",
            remedy="run `make release-lock` with access to the registries and AWS; for images of ours, `make image PUSH=1 ENV=…`",
        )
