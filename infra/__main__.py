"""The program that `pulumi up` runs: check settings and release, fetch charts, register resources, export outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import pulumi
from pulumi.runtime import config

# Pulumi runs this folder as a script and puts it on sys.path instead of the repository's root.
sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.aws.exports import export
from infra.aws.program import make_platform
from infra.lifecycle.registries import Registries
from infra.spec import release_rules
from infra.spec.errors import PlatformError, SettingsError
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, load_environment
from infra.spec.settings.loading import ENVIRONMENTS
from platform_charts.charts.archives import fetch_archives
from platform_charts.charts.crds import PinnedCharts
from platform_charts.charts.installs import installed_charts
from platform_charts.install.platform import install


def settings_of(stack: str) -> StackSettings:
    """Settings of the environment that has the stack's name.

    Raises:
        SettingsError: there is no such environment, a setting is invalid, or the stack's configuration has settings.
    """
    configured = sorted({**config.get_config_env(), **config.CONFIG.get()})
    if strays := [key for key in configured if not key.startswith("pulumi:")]:
        raise SettingsError(
            f"Pulumi.{stack}.yaml: {', '.join(strays)}: settings are not read from Pulumi's configuration",
            remedy=f"remove them (`pulumi config rm KEY -s {stack}`), and edit {ENVIRONMENTS / f'{stack}.yaml'}",
        )
    return load_environment(stack)


def main() -> None:
    """Run the program; report a `PlatformError` without a traceback."""
    try:
        settings, release = settings_of(pulumi.get_stack()), load_release()
        kind = settings.environment.kind
        release_rules.check_release(release, kind=kind, project=release_rules.read_project())
        charts = installed_charts(settings)
        fetch_archives(release, charts, source=Registries(), kind=kind, mirror=settings.mirrors.charts)
        platform = make_platform(settings)
        install(platform, crds=PinnedCharts(release))
        export(platform)
    except PlatformError as error:
        raise pulumi.RunError(str(error)) from error


if __name__ == "__main__":
    main()
