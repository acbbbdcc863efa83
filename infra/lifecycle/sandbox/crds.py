"""CRDs for a control plane on which no chart is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.lifecycle.sandbox.modules import CRD_MODULES
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CRD_GROUPS, CrdFolder, PinnedCharts


def available_crds(environment: Mapping[str, str]) -> tuple[Manifest, ...]:
    """The CRDs of the release's charts where the chart is fetched, else those that `make engines` copied.

    Args:
        environment: see `modules.cache_root`.
    """
    found = {crd["metadata"]["name"]: crd for crd in (*copied_crds(environment), *_fetched())}
    return tuple(found.values())


def copied_crds(environment: Mapping[str, str]) -> tuple[Manifest, ...]:
    """The CRDs that `make engines` copied; see `available_crds`."""
    folders = (module.crd_folder(environment) for module in CRD_MODULES)
    return tuple(crd for folder in folders if folder.is_dir() for crd in CrdFolder(folder).crds())


def _fetched() -> Iterator[Manifest]:
    release = load_release()
    for chart, group in CRD_GROUPS.items():
        if archive_path(chart, release.charts[chart]).is_file():
            yield from PinnedCharts(release).crds(group)
