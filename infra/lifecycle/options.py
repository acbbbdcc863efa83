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
    """The environment."""

    env: str = option(_ENVIRONMENT, ...)


@dataclass(frozen=True, kw_only=True)
class GraphOptions(EnvironmentOptions):
    """Options of `graph`."""

    json: Path | None = option("write every resource as JSON", metavar="FILE")
    picture: Path | None = option("draw the architecture as .svg, .png or .pdf", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputsOptions(EnvironmentOptions):
    """Options of `outputs`."""

    file: Path | None = option("output of `pulumi stack output --json`; default: run pulumi")


@dataclass(frozen=True, kw_only=True)
class ReleaseCheckOptions:
    """Options of `release-check`."""

    env: str | None = option("also apply this environment's rules, e.g. prod refuses unresolved entries")


@dataclass(frozen=True, kw_only=True)
class StalenessOptions:
    """Options of `staleness`."""

    days: int = option("days after which an entry is stale (default 90)", 90)


@dataclass(frozen=True, kw_only=True)
class PricesOptions:
    """Options of `prices`."""

    dry_run: bool = option("print the changes without writing them", default=False)


@dataclass(frozen=True, kw_only=True)
class ReleaseLockOptions(PricesOptions):
    """Options of `release-lock`."""

    region: str = option("region in which AMIs and add-ons are looked up (default us-east-1)", "us-east-1")


@dataclass(frozen=True, kw_only=True)
class TestEnvironmentOptions:
    """Options of `test-environment`."""

    __test__ = False  # not a class of tests, in spite of its name

    name: str = option("name of the environment, e.g. test-4711", ...)
    owner: str = option("email address of the owner", ...)
    account: str = option("AWS account, the only one that the environment allows", ...)
    hours: float = option("hours until it expires (default 8)", 8.0)
    budget: float = option("US dollars per month from which the owner gets mail (default 100)", 100.0)


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(EnvironmentOptions):
    """Options of commands that change a stack."""

    yes: bool = option("do not ask for confirmation", default=False)


@dataclass(frozen=True, kw_only=True)
class SandboxOptions(EnvironmentOptions):
    """Options of `sandbox`."""

    crds: Path | None = option("folder of CRDs in YAML; default: those of charts and engines", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of `image`."""

    image: Literal["trainer", "mlflow"] | None = argument("image to build (default all)")
    variant: Literal["cuda", "cpu"] = option("variant of the trainer (default cuda)", "cuda")
    push: bool = option("push to the stack's registry, and write the digest into the release", default=False)
    env: str | None = option(f"with --push, the stack whose registry to use: {', '.join(environment_names())}")
