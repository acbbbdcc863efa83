"""The program that `pulumi up` runs: check settings and release, fetch charts, register resources, export outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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
from infra.spec.settings import StackSettings, from_mapping
from infra.spec.settings.loading import sections_of
from platform_charts.charts.archives import fetch_archives
from platform_charts.charts.crds import PinnedCharts
from platform_charts.charts.installs import installed_charts
from platform_charts.install.platform import install


def _value(text: str) -> object:
    """A configuration value; Pulumi passes mappings and lists as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def settings_of(stack: str) -> StackSettings:
    """Validated settings of the stack that Pulumi has selected.

    Raises:
        SettingsError: a setting is invalid, or the file is another environment's.
    """
    file = f"Pulumi.{stack}.yaml"
    # pulumi.Config only looks up known keys and would miss a misspelt section.
    raw: dict[str, Any] = {**config.get_config_env(), **config.CONFIG.get()}
    document = {"config": {key: _value(value) for key, value in raw.items()}}
    settings = from_mapping(sections_of(document, file=file), file=file)
    if settings.environment.name != stack:
        raise SettingsError(
            f"{file}: environment.name = {settings.environment.name}: must equal the stack's name, {stack}",
            remedy=f"set environment.name: {stack}",
        )
    return settings


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
