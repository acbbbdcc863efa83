"""Change a stack, after the preflight."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3

from infra.lifecycle import preflight as checks
from infra.lifecycle import pulumi_cli
from infra.lifecycle.options import ChangeOptions, EnvironmentOptions
from infra.lifecycle.registries import Registries
from infra.lifecycle.running import StackCluster
from infra.lifecycle.show import print_line
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.release import load_release
from infra.spec.settings import check_account, load_environment
from infra.spec.stack_outputs import find_pulumi
from platform_charts.charts.crds import FetchedCharts


def preflight(options: EnvironmentOptions) -> int:
    """Run the preflight."""
    _check(options.env)
    print_line(f"{options.env}: preflight passed")
    return 0


def preview(options: ChangeOptions) -> int:
    """Run the preflight, then `pulumi preview`; returns pulumi's exit status."""
    return _change("preview", options)


def up(options: ChangeOptions) -> int:
    """Run the preflight, then `pulumi up`; returns pulumi's exit status."""
    return _change("up", options)


def destroy(options: ChangeOptions) -> int:
    """Run `pulumi destroy` in an allowed account; returns pulumi's exit status."""
    find_pulumi()
    case = _case(options.env)
    check_account(case.settings, checks.account_of(case.session))
    return pulumi_cli.run("destroy", environment=options.env, is_confirmed=options.yes)


def _change(command: str, options: ChangeOptions) -> int:
    find_pulumi()
    _check(options.env)
    return pulumi_cli.run(command, environment=options.env, is_confirmed=options.yes)


def _check(environment: str) -> None:
    case = _case(environment)
    checks.check(case)
    for note in checks.notes(case):
        print_line(f"note: {note}")


def _case(environment: str) -> checks.Case:
    settings, release = load_environment(environment), load_release()
    return checks.Case(
        settings=settings,
        catalog=load_catalog(),
        release=release,
        project=release_rules.read_project(),
        session=boto3.Session(region_name=settings.aws.region),
        now=datetime.now(UTC),
        cluster=StackCluster(settings),
        crds=FetchedCharts(
            release, source=Registries(), kind=settings.environment.kind, mirror=settings.mirrors.charts
        ),
    )
