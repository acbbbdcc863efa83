"""Change a stack, after everything has been checked that can be known before."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import boto3

from infra import release_rules
from infra.catalog import load_catalog
from infra.lifecycle import engine
from infra.lifecycle import preflight as checks
from infra.lifecycle.show import print_line
from infra.release import load_release
from infra.settings import check_account, load


def preflight(options: argparse.Namespace) -> int:
    """Check all that can be known before anything is created."""
    checks.check(_case(options.env))
    print_line(f"{options.env}: nothing stands in the way")
    return 0


def change(options: argparse.Namespace) -> int:
    """Preview or bring up a stack, after the preflight; exits as pulumi does."""
    engine.find()
    checks.check(_case(options.env))
    return engine.run(options.name, environment=options.env, is_confirmed=options.yes)


def destroy(options: argparse.Namespace) -> int:
    """Destroy a stack, in an account it may be in; exits as pulumi does."""
    engine.find()
    case = _case(options.env)
    check_account(case.settings, checks.account_of(case.session))
    return engine.run("destroy", environment=options.env, is_confirmed=options.yes)


def _case(environment: str) -> checks.Case:
    settings = load(environment)
    return checks.Case(
        settings=settings,
        catalog=load_catalog(),
        release=load_release(),
        project=release_rules.read_project(),
        session=boto3.Session(region_name=settings.aws.region),
        now=datetime.now(UTC),
    )
