"""SBOM: complete, valid and reproducible."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from infra.lifecycle.image import sbom
from infra.lifecycle.image.plan import Build, Torch, plan
from infra.lifecycle.image.recipes import IMAGES, RECIPES, ImageName, Variant
from infra.lifecycle.image.source import Source
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.samples import EFA_SHA256, release

REMOVED: dict[ImageName, set[str]] = {"trainer": {"setuptools"}, "mlflow": set()}
"""Packages of the lock that are not in the image."""
CPU = Torch("2.15.0+cpu", "")


def build(
    image: ImageName, variant: Variant = "cuda", torch: Torch | None = None, *, revision: str = "a" * 40
) -> Build:
    """A build with this repository's lock files."""
    return plan(image, release(), Source(ROOT, revision, "c" * 64, ()), variant=variant, torch=torch)


def components(build: Build) -> dict[str, dict[str, Any]]:
    """Components by name of an SBOM, which is valid CycloneDX."""
    document = sbom.document(build)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    return {one["name"]: one for one in json.loads(document)["components"]}


@pytest.mark.parametrize("image", IMAGES)
def test_every_package_of_the_lock_is_listed_with_its_hashes(image: ImageName) -> None:
    locks = [lock for lock in (RECIPES[image].lock, RECIPES[image].added_lock) if lock]
    text = "".join((ROOT / lock).read_text(encoding="utf-8") for lock in locks)
    listed = components(build(image))
    pinned = re.findall(r"^(\S+)==(\S+) ", text, flags=re.MULTILINE)
    kept = {one for one in pinned if one[0] not in REMOVED[image]}
    assert {(name, listed[name]["version"]) for name, _ in kept} == kept
    assert not REMOVED[image] & set(listed)
    hashes = {one["content"] for component in listed.values() for one in component.get("hashes", [])}
    entries = [entry for entry in re.split(r"\n(?=[a-z])", text) if entry.partition("==")[0] not in REMOVED[image]]
    assert hashes - {EFA_SHA256} == set(re.findall(r"sha256:(\S+)", "\n".join(entries)))


def test_the_variant_for_cpus_has_its_own_torch_and_that_for_cuda_base_image_and_installer() -> None:
    listed = components(build("trainer", "cpu", CPU))
    assert listed["torch"]["version"] == "2.15.0+cpu"
    assert not [name for name in listed if name.startswith("nvidia-cu") or name == "triton"]
    listed = components(build("trainer"))
    assert build("trainer").arguments["PYTHON_IMAGE"] in listed
    [installer] = [one for name, one in listed.items() if name.startswith("aws-efa-installer-")]
    assert [one["content"] for one in installer["hashes"]] == [EFA_SHA256]


def test_another_torch_excludes_the_packages_that_the_environment_script_excludes() -> None:
    script = (ROOT / ".make/environment").read_text(encoding="utf-8")
    assert "keep = !/^(torch|triton)==|^(nvidia|cuda)-/" in script
    names = {"torch", "triton", "nvidia-nccl-cu13", "cuda-toolkit", "torchmetrics", "tritonclient"}
    assert {name for name in names if sbom._REPLACED.match(name)} == names - {"torchmetrics", "tritonclient"}


def test_the_same_build_has_the_same_sbom_which_names_the_commit_that_the_image_does_not_contain() -> None:
    one, other = build("mlflow"), build("mlflow", revision="b" * 40)
    assert sbom.document(one) == sbom.document(build("mlflow"))
    assert one.tag == other.tag
    documents = [json.loads(sbom.document(each)) for each in (one, other, build("trainer"))]
    assert len({document["serialNumber"] for document in documents}) == 3
    properties = documents[1]["metadata"]["component"]["properties"]
    assert {"name": "ray-train-platform:revision", "value": "b" * 40} in properties
