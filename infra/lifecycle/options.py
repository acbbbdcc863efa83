"""The options of the stack's commands, one dataclass each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from infra.spec.command_line import argument, option
from infra.spec.settings import environment_names

_ENVIRONMENT: Final = f"environment: {', '.join(environment_names())}"


@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """Which environment."""

    env: str = option(_ENVIRONMENT, ...)


@dataclass(frozen=True, kw_only=True)
class GraphOptions(EnvironmentOptions):
    """Of `graph`."""

    json: Path | None = option("write every resource as JSON", metavar="FILE")
    picture: Path | None = option("draw the architecture, as .svg, .png or .pdf", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputsOptions(EnvironmentOptions):
    """Of `outputs`."""

    file: Path | None = option("what `pulumi stack output --json` printed; asks pulumi without it")


@dataclass(frozen=True, kw_only=True)
class ReleaseCheckOptions:
    """Of `release-check`."""

    env: str | None = option("refuse what this environment refuses, e.g. anything unresolved in prod")


@dataclass(frozen=True, kw_only=True)
class StalenessOptions:
    """Of `staleness`."""

    days: int = option("age from which an entry is stale (default 90)", 90)


@dataclass(frozen=True, kw_only=True)
class PricesOptions:
    """Of `prices`."""

    dry_run: bool = option("print what would be written", default=False)


@dataclass(frozen=True, kw_only=True)
class ReleaseLockOptions(PricesOptions):
    """Of `release-lock`."""

    region: str = option("region that is asked for AMIs and add-ons (default us-east-1)", "us-east-1")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(EnvironmentOptions):
    """Of what changes a stack."""

    yes: bool = option("do not ask before anything is changed", default=False)


@dataclass(frozen=True, kw_only=True)
class SandboxOptions(EnvironmentOptions):
    """Of `sandbox`."""

    crds: Path | None = option(
        "folder of CRDs in YAML, used instead of those of the charts and the engines", metavar="FOLDER"
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Of `image`."""

    image: Literal["trainer", "mlflow"] | None = argument("which; all of them without it")
    variant: Literal["cuda", "cpu"] = option("of the trainer (default cuda)", "cuda")
    push: bool = option("push to the stack's registry and write the digest down", default=False)
    env: str | None = option(f"{_ENVIRONMENT}; its registry")
