"""A checkout of the project for the real Pulumi engine, in which every version of the release is resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.yaml_text import KeyPath, Scalar, edited
from platform_charts.charts.archives import archive_path
from tests.engines.checkouts import ROOT, commit_all, copy_working_tree
from tests.platform_charts.charts.archives import charts

_SHA256 = "0a" * 32
_DIGEST = f"sha256:{_SHA256}"
"""Stand for downloads and images, which no fake build and no fake pod pulls. Charts write a digest without quotation marks, so
one without letters would be a number."""


class Checkout:
    """A git checkout of the working tree with its own release manifest, archives and environments."""

    def __init__(self, root: Path, archives: Mapping[str, bytes]) -> None:
        self.root = root
        copy_working_tree(root)
        self._release(archives)
        commit_all(root)

    def edit(self, environment: str, changes: Mapping[KeyPath, Scalar]) -> None:
        """Change settings of an environment."""
        file = self.root / "infra" / "environments" / f"{environment}.yaml"
        file.write_text(edited(file.read_text(encoding="utf-8"), changes), encoding="utf-8")

    def _release(self, archives: Mapping[str, bytes]) -> None:
        release, changes = load_release(), dict[KeyPath, Scalar]()
        for name in release.unresolved():
            path = tuple(name.split("."))
            changes[path] = _resolved(path, release.kubernetes.version)
        for name, content in archives.items():
            changes["charts", name, "sha256"] = hashlib.sha256(content).hexdigest()
            file = self.root / archive_path(name, release.charts[name]).relative_to(ROOT)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for name, image in release.images.items():
            if image.is_ours:
                changes.pop(("images", name, "digest"), None)
        file = self.root / RELEASE_FILE.relative_to(ROOT)
        file.write_text(edited(file.read_text(encoding="utf-8"), changes), encoding="utf-8")


def _resolved(path: tuple[str, ...], kubernetes: str) -> str:
    if path[0] == "node_image":
        return f"{kubernetes}.0-20260101"
    if path[0] == "addons":
        return _unpinned_addon(path[1], kubernetes)
    return _DIGEST if path[0] == "images" else _SHA256


def _unpinned_addon(name: str, kubernetes: str) -> str:
    return f"v{kubernetes}.0-eksbuild.1" if name == "kube-proxy" else "v99.0.0-eksbuild.1"


def resolved_addon(name: str, kubernetes: str) -> str:
    """Version of an add-on in a checkout: the release's, or the one that is filled in."""
    return load_release().addons[name].version or _unpinned_addon(name, kubernetes)


def chart_archives() -> Mapping[str, bytes]:
    """The real archives if all are here in their pinned versions, else small fake charts with the same names."""
    release = load_release()
    found = {name: archive_path(name, chart) for name, chart in release.charts.items()}
    if all(path.is_file() for path in found.values()):
        return {name: path.read_bytes() for name, path in found.items()}
    return charts(release, take_time=True)
