"""Software bill of materials (SBOM) of an image: CycloneDX 1.6 as JSON.

It is generated from the lock file, with the hashes that the build enforced, and names the commit, which the image does not
contain; that of a derived image is generated from what was resolved for it. Serial number and time derive from the build, so the
same build has the same SBOM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from infra.lifecycle.image.plan import EPOCH, Build, EngineBuild
from infra.lifecycle.image.recipes import RECIPES
from infra.packages.derived import REMOVED, linux_markers
from infra.packages.lock import Package, read_lock

FOLDER = Path(".local/sbom")
"""Folder of SBOMs, relative to the repository."""

_REPLACED = re.compile(r"(torch|triton)$|(nvidia|cuda)-")
"""Packages that another build of torch replaces or omits; `.make/environment` excludes the same ones."""


def packages(build: Build) -> tuple[Package, ...]:
    """The packages of an image, by name."""
    removed = _removed(build)
    locks = [build.lock, *(build.context / added for added in RECIPES[build.image].added_locks)]
    markers = linux_markers(build.python)
    locked = sorted(package for lock in locks for package in read_lock(lock, markers) if package.name not in removed)
    if build.torch is None:
        return tuple(locked)
    kept = [package for package in locked if not _REPLACED.match(package.name)]
    return tuple(sorted([*kept, Package("torch", build.torch.version, ())]))


def _removed(build: Build) -> set[str]:
    """Packages that the build removes as a whole: installers, and names without a slash in its list."""
    unused = RECIPES[build.image].unused
    lines = (build.context / unused).read_text(encoding="utf-8").splitlines() if unused else []
    return {*REMOVED, *(line.strip() for line in lines if not set("#/") & set(line))}


def document(build: Build) -> str:
    """The SBOM of a build, as JSON."""
    properties = {"lock-sha256": build.arguments["LOCK_SHA256"], "revision": build.revision}
    contents = [*(_component(package) for package in packages(build)), *_installer(build)]
    return _document(build, build.arguments["PYTHON_IMAGE"], contents, properties)


def derived_document(build: EngineBuild, added: Iterable[Package]) -> str:
    """The SBOM of a derived image, as JSON: the packages that it adds to its base, which has an SBOM of its own."""
    return _document(build, build.arguments["TRAINER_IMAGE"], [_component(package) for package in added], {})


def _document(build: EngineBuild, base: str, contents: Sequence[Component], properties: Mapping[str, str]) -> str:
    image = Component(
        name=f"ray-train-platform/{build.image}",
        version=build.tag,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[Property(name=f"ray-train-platform:{name}", value=value) for name, value in properties.items()],
    )
    components = [Component(name=base, type=ComponentType.CONTAINER, bom_ref="base"), *contents]
    bom = Bom(
        components=components,
        serial_number=uuid5(NAMESPACE_URL, ":".join((build.image, build.tag, properties.get("revision", base)))),
        metadata=BomMetaData(component=image, timestamp=datetime.fromtimestamp(EPOCH, UTC)),
    )
    bom.register_dependency(image, components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def write(root: Path, build: EngineBuild, text: str) -> Path:
    """Write the SBOM of a build into a checkout; returns the file."""
    file = root / FOLDER / f"{build.image}-{build.tag}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


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
