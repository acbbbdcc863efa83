"""Change a stack, after the preflight."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3

from infra.kube.api import KubernetesApi
from infra.kube.errors import ConnectionLostError
from infra.lifecycle import preflight as checks
from infra.lifecycle import pulumi_cli
from infra.lifecycle.options import ChangeOptions, EnvironmentOptions
from infra.lifecycle.registries import Registries
from infra.lifecycle.running import StackCluster
from infra.lifecycle.show import print_line
from infra.lifecycle.stack_state import check_interrupted, check_unprotected, read_state
from infra.lifecycle.workloads import check_served, delete_workloads, describe, find_workloads
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from infra.spec.names import cluster_name, database_identifier, stack_tag
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
    """Delete the jobs, then run `pulumi destroy` in an allowed account; returns pulumi's exit status."""
    find_pulumi()
    case = _case(options.env)
    settings = case.settings
    check_account(settings, checks.account_of(case.session))
    state = read_state(options.env)
    if state is not None:
        check_interrupted(state, environment=options.env, stack_tag=stack_tag(settings))
        name = cluster_name(settings)
        check_unprotected(state, environment=options.env, cluster=name, database=database_identifier(settings))
    try:
        _delete_workloads(options, case.cluster.api())
    except ConnectionLostError as error:
        # A cluster that is gone must not keep the rest of its stack.
        print_line(f"note: jobs are not deleted first: {error.args[0]}")
    return pulumi_cli.run("destroy", environment=options.env, is_confirmed=options.yes)


def _delete_workloads(options: ChangeOptions, api: KubernetesApi | None) -> None:
    if api is None:
        return
    check_served(api)
    found = find_workloads(api)
    if not found:
        return
    if not options.yes:
        print_line(f"{options.env} has jobs and Ray clusters, which are deleted first: {describe(found)}")
        if _answer(f"type {options.env} to delete them and destroy the stack: ") != options.env:
            raise RefusedError("nothing was deleted", remedy="answer with the environment's name, or set YES=1")
    delete_workloads(api, say=print_line)


def _answer(question: str) -> str:
    """What the user types; empty without a terminal."""
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _change(command: str, options: ChangeOptions) -> int:
    find_pulumi()
    _check(options.env)
    state = read_state(options.env)
    if state is not None:
        check_interrupted(state, environment=options.env, stack_tag=stack_tag(load_environment(options.env)))
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
