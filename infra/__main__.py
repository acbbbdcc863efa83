"""What `pulumi up` runs: configuration in, the checks that need no cloud, the charts, the program, its outputs out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config

# The engine runs this folder by its path, and puts the folder on the module path, not what the folder lies in.
sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.aws.exports import export
from infra.aws.program import build
from infra.lifecycle.registries import Registries
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError, StackError
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from infra.spec.settings.loading import sections_of
from platform_charts.charts.archives import fetch_all
from platform_charts.charts.crds import PinnedCharts
from platform_charts.charts.installs import chart_installs
from platform_charts.install.platform import install


def _value(text: str) -> object:
    """A configuration value; Pulumi hands mappings and lists over as JSON, and everything else as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def settings_of(stack: str) -> StackSettings:
    """The settings that Pulumi has read from the stack's file.

    Raises:
        SettingsError: a wrong setting, or another environment's file.
    """
    file = f"Pulumi.{stack}.yaml"
    # Not pulumi.Config: it answers for keys one asks for, and a misspelt section is one that nobody asks for.
    raw: dict[str, Any] = {**config.get_config_env(), **config.CONFIG.get()}
    document = {"config": {key: _value(value) for key, value in raw.items()}}
    settings = from_mapping(sections_of(document, file=file), file=file)
    if settings.environment.name != stack:
        raise SettingsError(
            f"{file}: environment.name = {settings.environment.name}: the stack is {stack}, and both are one name",
            remedy=f"set environment.name: {stack}",
        )
    return settings


def main() -> None:
    """Run the program, or end it with a message and without a traceback."""
    try:
        settings, release = settings_of(pulumi.get_stack()), load_release()
        kind = settings.environment.kind
        release_rules.check_release(release, kind=kind, project=release_rules.read_project())
        charts = chart_installs(settings, release, load_catalog())
        fetch_all(release, charts, source=Registries(), kind=kind, mirror=settings.mirrors.charts)
        platform = build(settings)
        install(platform, crds=PinnedCharts(release))
        export(platform)
    except StackError as error:
        raise pulumi.RunError(str(error)) from error


if __name__ == "__main__":
    main()
