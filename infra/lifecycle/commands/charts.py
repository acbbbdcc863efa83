"""Download charts before `up`, e.g. to copy them to a machine without access to the repositories."""

from __future__ import annotations

from infra.lifecycle.options import EnvironmentOptions
from infra.lifecycle.release.registries import Registries
from infra.lifecycle.show import print_line
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.charts.archives import fetch_archives
from platform_charts.charts.installs import installed_charts


def fetch(options: EnvironmentOptions) -> int:
    """Download and verify every chart that the environment installs, and print its path."""
    settings, release = load_environment(options.env), load_release()
    names, kind, mirror = installed_charts(settings), settings.environment.kind, settings.mirrors.charts
    for path in fetch_archives(release, names, source=Registries(), kind=kind, mirror=mirror).values():
        print_line(f"  {path}")
    return 0
