"""Change a stack, after the preflight."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import boto3

from infra.kube.api import KubernetesApi
from infra.kube.connection import API_SERVER
from infra.kube.errors import ConnectionLostError
from infra.lifecycle import preflight as checks
from infra.lifecycle import pulumi_cli
from infra.lifecycle.bring_up import BringUp
from infra.lifecycle.commands.own_images import OwnImages
from infra.lifecycle.connection import connection
from infra.lifecycle.options import ChangeOptions, EnvironmentOptions, TunnelOptions, UpOptions
from infra.lifecycle.reach import ThisMachine
from infra.lifecycle.registries import Registries
from infra.lifecycle.rollout.jobs import running_jobs
from infra.lifecycle.rollout.plan import CHOICES, Choice, RollPlan, explain, plan_of_update
from infra.lifecycle.rollout.update import GuardedUpdate
from infra.lifecycle.running import StackCluster
from infra.lifecycle.show import print_line
from infra.lifecycle.stack_state import check_interrupted, check_unprotected, read_state
from infra.lifecycle.tunnel import open_tunnel
from infra.lifecycle.workloads import check_served, delete_workloads, describe, find_workloads
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from infra.spec.names import cluster_name, database_identifier, stack_tag
from infra.spec.release import load_release
from infra.spec.settings import check_account, load_environment
from infra.spec.stack_outputs import find_pulumi
from platform_charts.charts.crds import FetchedCharts

_HOUR = 3600


def preflight(options: EnvironmentOptions) -> int:
    """Run the preflight."""
    case = _case(options.env)
    with _connected(case):
        _check(case)
    print_line(f"{options.env}: preflight passed")
    return 0


def preview(options: ChangeOptions) -> int:
    """Run the preflight, then `pulumi preview`, and say what an update does to jobs; returns pulumi's exit status."""
    case = _ready(options.env)
    with _connected(case):
        _check(case)
        status = pulumi_cli.run("preview", environment=options.env, is_confirmed=options.yes)
        api = None if status else StackCluster(case.settings).api()
        if api is not None:
            _explain(plan_of_update(pulumi_cli.preview_document(options.env)), api)
    return status


def _explain(plan: RollPlan, api: KubernetesApi) -> None:
    jobs = running_jobs(api, groups=plan.groups, has_progress=True) if plan.rolling else ()
    for line in explain(plan, jobs):
        print_line(line)


def up(options: UpOptions) -> int:
    """Run the preflight, then `pulumi up`, as often as it takes; returns pulumi's exit status."""
    if options.promote_from is not None:
        load_environment(options.promote_from)
    case = _ready(options.env)
    with _connected(case):
        _check(case)

    def pulumi(*targets: str) -> int:
        return pulumi_cli.run("up", environment=options.env, is_confirmed=options.yes, targets=targets)

    def update() -> int:
        api = StackCluster(case.settings).api()
        return pulumi() if api is None else _guarded(options, api, pulumi)

    return BringUp(
        settings=case.settings,
        account=case.account,
        session=case.session,
        probe=case.probe,
        images=OwnImages(options.env, promote_from=options.promote_from),
        pulumi=pulumi,
        update=update,
        say=print_line,
    ).run()


def _guarded(options: UpOptions, api: KubernetesApi, pulumi: Callable[[], int]) -> int:
    print_line("reading which nodes the update replaces")
    return GuardedUpdate(
        environment=options.env,
        api=api,
        preview=lambda: pulumi_cli.preview_document(options.env),
        pulumi=pulumi,
        choose=lambda: _choice(options.jobs),
        seconds=options.hours * 3600,
        say=print_line,
    ).run()


def _choice(given: Choice | None) -> Choice:
    """What to do about jobs on nodes that roll: as given, or as the user types.

    Raises:
        RefusedError: neither.
    """
    if given is not None:
        return given
    answer = _answer(f"{', '.join(CHOICES)}? ")
    for choice in CHOICES:
        if answer == choice:
            return choice
    raise RefusedError(
        "nothing was changed: jobs run on nodes that roll", remedy="set JOBS=wait, JOBS=drain or JOBS=go"
    )


def destroy(options: ChangeOptions) -> int:
    """Delete the jobs, then run `pulumi destroy` in an allowed account; returns pulumi's exit status."""
    case = _case(options.env)
    find_pulumi()
    settings = case.settings
    check_account(settings, case.caller.account)
    state = read_state(options.env)
    if state is not None:
        check_interrupted(state, environment=options.env, stack_tag=stack_tag(settings))
        name = cluster_name(settings)
        check_unprotected(state, environment=options.env, cluster=name, database=database_identifier(settings))
    with _connected(case):
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


def _ready(environment: str) -> checks.Case:
    """The environment's case, once pulumi, the account and the stack's state allow a change."""
    case = _case(environment)
    find_pulumi()
    check_account(case.settings, case.caller.account)
    state = read_state(environment)
    if state is not None:
        check_interrupted(state, environment=environment, stack_tag=stack_tag(case.settings))
    return case


def _connected(case: checks.Case) -> AbstractContextManager[None]:
    return connection(case.settings, case.session, case.account.endpoint, case.probe, say=print_line)


def _check(case: checks.Case) -> None:
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
        probe=ThisMachine(),
    )


def tunnel(options: TunnelOptions) -> int:
    """Forward a port of this machine to the API server until interrupted."""
    case = _case(options.env)
    check_account(case.settings, case.caller.account)
    if case.account.endpoint is None:
        raise RefusedError(
            f"{cluster_name(case.settings)} does not exist", remedy=f"bring it up: `make up ENV={options.env}`"
        )
    with open_tunnel(case.settings, case.session, case.account.endpoint, port=options.port) as url:
        print_line(f"{case.account.endpoint} is at {url} until you press Ctrl-C. In other terminals:")
        print_line(f"  export {API_SERVER}={url}")
        while True:
            time.sleep(_HOUR)
