"""What commands that change a stack begin with: its settings, account, state and connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import boto3

from infra.lifecycle.access.connection import connection
from infra.lifecycle.access.reach import ThisMachine
from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.release.registries import Registries
from infra.lifecycle.show import print_line
from infra.lifecycle.stack.state import check_interrupted, state_of
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.names import stack_tag
from infra.spec.release import load_release
from infra.spec.settings import check_account, load_environment
from infra.spec.stack_outputs import ask_pulumi, find_pulumi
from platform_charts.charts.crds import FetchedCharts


def case_of(environment: str) -> Case:
    """The input of the preflight's checks; asks AWS and the cluster nothing yet.

    Raises:
        SettingsError: the environment does not exist, or is invalid.
    """
    settings, release = load_environment(environment), load_release()
    return Case(
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


def allowed_case(environment: str) -> Case:
    """The environment's case, once pulumi is there and the credentials belong to an allowed account.

    Raises:
        PlatformError: they do not, or there is no such environment.
    """
    case = case_of(environment)
    find_pulumi()
    check_account(case.settings, case.caller.account)
    return case


def ready_case(environment: str) -> Case:
    """The environment's case, once pulumi, the account and the stack's state allow a change.

    Raises:
        PlatformError: one of them does not.
    """
    case = allowed_case(environment)
    if case.state is not None:
        # Reads the stack's secrets, without whose passphrase or key a preview fails, after everything else.
        ask_pulumi(environment, "stack")
        check_interrupted(state_of(case.state), environment=environment, stack_tag=stack_tag(case.settings))
    return case


def connected(case: Case, *, say: Callable[[str], None] = print_line) -> AbstractContextManager[None]:
    """Let this process and those that it starts reach the API server, see `connection`."""
    return connection(case.settings, case.session, case.account.endpoint, case.probe, say=say)


def answer(question: str) -> str:
    """What the user types; empty without a terminal."""
    try:
        return input(question).strip()
    except EOFError:
        print_line("")  # what follows does not belong to the question
        return ""
