"""The settings of Renovate find every version that the release pins, and what Renovate would write is a valid release."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from infra.spec.section import validate
from infra.spec.yaml_text import parse
from tests.docs.workflows import GITHUB, ROOT, WORKFLOWS

SETTINGS: dict[str, Any] = json.loads((GITHUB / "renovate.json").read_text(encoding="utf-8"))
_NO_RE2 = re.compile(r"\(\?[=!]|\(\?<[=!]|\\[1-9]|\\k<")
"""What Renovate's engine of regular expressions lacks: look-around and back references."""


class Pin(NamedTuple):
    """A version that Renovate finds.

    Attributes:
        kind: `depTypeTemplate` of the manager.
        name: name of the dependency.
        version: the version.
        digest: digest or hash; None if it is not read.
        text: what is found, and replaced.
        manager: the custom manager.
    """

    kind: str
    name: str
    version: str
    digest: str | None
    text: str
    manager: dict[str, Any]


def managers(file: str) -> list[dict[str, Any]]:
    """The custom managers of a file."""
    return [
        one
        for one in SETTINGS["customManagers"]
        if any(re.search(pattern.strip("/"), file) for pattern in one["managerFilePatterns"])
    ]


def found_in(text: str, file: str) -> Iterator[Pin]:
    """What Renovate finds in a file."""
    for manager in managers(file):
        for pattern in manager["matchStrings"]:
            # JavaScript names groups without a P.
            for match in re.finditer(pattern.replace("(?<", "(?P<"), text):
                groups = match.groupdict()
                name = groups.get("depName") or manager["depNameTemplate"]
                version = groups["currentValue"]
                kind = manager.get("depTypeTemplate", "")
                yield Pin(kind, name, version, groups.get("currentDigest"), match[0], manager)


def pins() -> list[Pin]:
    """What Renovate finds in the release manifest."""
    file = RELEASE_FILE.relative_to(ROOT).as_posix()
    return [*found_in(RELEASE_FILE.read_text(encoding="utf-8"), file)]


def pinned(release: ReleaseManifest) -> set[tuple[str, str, str]]:
    """Kind, name and version of everything that the manifest pins and Renovate has to find."""
    kinds = {
        name: "oci-chart" if one.repository.startswith("oci://") else "chart" for name, one in release.charts.items()
    }
    images = {name: image for name, image in release.images.items() if not image.is_ours}
    return {
        *((kinds[name], name, str(chart.version)) for name, chart in release.charts.items()),
        *(
            ("image-of-chart" if image.chart or image.values_of else "image", name, image.tag)
            for name, image in images.items()
        ),
        *(("stack", name, str(getattr(release.stack, name))) for name in ("ray", "torch", "mlflow")),
        ("crds", "kuberay-crds", release.crds["kuberay"]),
    }


def test_every_version_of_the_release_is_found_once() -> None:
    found = [(pin.kind, pin.name, pin.version) for pin in pins()]
    assert sorted(found) == sorted(pinned(load_release()))


def test_a_new_version_and_its_digest_make_a_valid_release() -> None:
    """Without a template, Renovate replaces the old version and the old digest in what it has found."""
    text = RELEASE_FILE.read_text(encoding="utf-8")
    for pin in (pin for pin in pins() if pin.kind in {"chart", "image", "image-of-chart"}):
        digest = "ab" * 32 if pin.kind == "chart" else f"sha256:{'ab' * 32}"
        newer = "v99.1.2" if pin.version.startswith("v") else "99.1.2"
        assert text.count(pin.text) == 1, pin
        changed = text.replace(pin.text, pin.text.replace(pin.version, newer).replace(pin.digest or "", digest))
        release = validate(ReleaseManifest, parse(changed, source="release").value, file="release")
        if pin.kind == "chart":
            assert (release.charts[pin.name].version, release.charts[pin.name].sha256) == (newer, digest)
        else:
            assert (release.images[pin.name].tag, release.images[pin.name].digest) == (newer, digest)


def test_a_new_version_of_an_oci_chart_leaves_its_hash_unresolved() -> None:
    (pin,) = [pin for pin in pins() if pin.kind == "oci-chart"]
    chart = load_release().charts[pin.name]
    registry = chart.repository.removeprefix("oci://")
    template = pin.manager["autoReplaceStringTemplate"]
    written = template.replace("{{{depName}}}", pin.name).replace("{{{newValue}}}", "99.1.2")
    written = written.replace("{{{replace '/[^/]+$' '' packageName}}}", registry)
    assert "{{" not in written
    text = RELEASE_FILE.read_text(encoding="utf-8").replace(pin.text, written)
    release = validate(ReleaseManifest, parse(text, source="release").value, file="release")
    changed = release.charts[pin.name]
    assert (changed.repository, changed.version, changed.sha256) == (chart.repository, "99.1.2", None)


def test_the_pulumi_cli_of_the_workflows_is_found() -> None:
    files = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in WORKFLOWS}
    assert [pin.name for file, text in files.items() for pin in found_in(text, file)] == ["pulumi-cli"] * 2


def test_the_expressions_need_no_more_than_renovate_has() -> None:
    patterns = [pattern for one in SETTINGS["customManagers"] for pattern in one["matchStrings"]]
    assert [pattern for pattern in patterns if _NO_RE2.search(pattern)] == []
