"""The program that `pulumi up` runs: check settings and release, fetch charts, register resources, export outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import boto3
import pulumi
from pulumi.runtime import config

# Pulumi runs this folder as a script and puts it on sys.path instead of the repository's root.
sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.aws.exports import export
from infra.aws.program import make_platform
from infra.lifecycle.access.reach import ThisMachine, can_connect
from infra.lifecycle.release.registries import Registries
from infra.lifecycle.stack.stage import AccountState, Stage, next_steps, read_account, stage_of
from infra.spec import release_rules
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.names import cluster_name
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
        _register(settings_of(pulumi.get_stack()))
    except PlatformError as error:
        raise pulumi.RunError(str(error)) from error


def _register(settings: StackSettings) -> None:
    release, kind = load_release(), settings.environment.kind
    account = read_account(settings, release, boto3.Session(region_name=settings.aws.region))
    stage = stage_of(settings, account)
    is_all = stage is Stage.ALL
    project = release_rules.read_project()
    release_rules.check_release(release, kind=kind, project=project, needs_our_images=is_all)
    if not is_all:
        make_platform(settings)
        _announce(settings, account)
        return
    _check_connection(settings, account)
    fetch_archives(release, installed_charts(settings), source=Registries(), kind=kind, mirror=settings.mirrors.charts)
    platform = make_platform(settings)
    install(platform, crds=PinnedCharts(release))
    export(platform)


def _announce(settings: StackSettings, account: AccountState) -> None:
    steps = "".join(f"\n  {number}. {step}" for number, step in enumerate(next_steps(settings, account), 1))
    pulumi.log.warn(
        "this update registers the AWS resources only; nothing is installed on the cluster. `make up` goes on by itself; after a "
        f"bare `pulumi up`:{steps}"
    )


def _check_connection(settings: StackSettings, account: AccountState) -> None:
    """Refuse early: without a connection each Kubernetes object fails after its own timeout.

    Raises:
        RefusedError: there is a cluster, and its API server does not answer.
    """
    if account.endpoint is None or (why := can_connect(account.endpoint, ThisMachine())) is None:
        return
    name = settings.environment.name
    raise RefusedError(
        f"the API server of {cluster_name(settings)} does not answer this machine: {why}",
        remedy=f"`make tunnel ENV={name}` if its endpoint is private; else check cluster.public_cidrs and the network",
    )


if __name__ == "__main__":
    main()
