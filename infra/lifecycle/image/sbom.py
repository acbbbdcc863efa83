"""Software bill of materials (SBOM) of an image: CycloneDX 1.6 as JSON.

It is generated from the lock file, with the hashes that the build enforced. Serial number and time derive from the build, so
the same build has the same SBOM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from infra.lifecycle.image.plan import Build

_REPLACED = re.compile(r"(torch|triton)$|(nvidia|cuda)-")
"""Packages that another build of torch replaces or omits; `.make/environment` excludes the same ones."""

_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Package(NamedTuple):
    """A locked package; `hashes` are the sha256 of all its distributions."""

    name: str
    version: str
    hashes: tuple[str, ...]


def read_lock(lock: Path) -> Iterator[Package]:
    """The packages of a lock file.

    Raises:
        OSError: the file cannot be read.
    """
    for entry in re.split(r"\n(?=[a-z0-9])", lock.read_text(encoding="utf-8")):
        if match := _ENTRY.match(entry):
            yield Package(match["name"], match["version"], tuple(_HASH.findall(entry)))


def packages(build: Build) -> tuple[Package, ...]:
    """The packages of an image, by name."""
    locked = read_lock(build.lock)
    if build.torch is None:
        return tuple(locked)
    kept = [package for package in locked if not _REPLACED.match(package.name)]
    return tuple(sorted([*kept, Package("torch", build.torch.version, ())]))


def document(build: Build) -> str:
    """The SBOM of a build, as JSON."""
    arguments = build.arguments
    image = Component(
        name=f"ray-train-platform/{build.image}",
        version=build.tag,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[Property(name="ray-train-platform:lock-sha256", value=arguments["LOCK_SHA256"])],
    )
    base = Component(name=arguments["PYTHON_IMAGE"], type=ComponentType.CONTAINER, bom_ref="base")
    components = [base, *(_component(package) for package in packages(build)), *_installer(build)]
    bom = Bom(
        components=components,
        serial_number=uuid5(NAMESPACE_URL, f"{build.image}:{build.tag}:{arguments['BUILD']}"),
        metadata=BomMetaData(component=image, timestamp=datetime.fromtimestamp(build.committed, UTC)),
    )
    bom.register_dependency(image, components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def _component(package: Package) -> Component:
    url = PackageURL("pypi", name=package.name, version=package.version)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes],
    )


def _installer(build: Build) -> Iterator[Component]:
    """The EFA installer, if the variant has it."""
    if "EFA_URL" in build.arguments:
        digest = HashType(alg=HashAlgorithm.SHA_256, content=build.arguments["EFA_SHA256"])
        yield Component(
            name=build.arguments["EFA_URL"].rpartition("/")[2],
            type=ComponentType.FILE,
            bom_ref="efa-installer",
            hashes=[digest],
        )
