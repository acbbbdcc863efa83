"""Load and validate the settings of an environment: one YAML file with one key per section.

Pulumi does not read these files, and its own stack files are elsewhere (`STACK_FILES`): `pulumi stack init` rewrites a stack file, to
add the key of the stack's secrets. So graph, cost and job submission need neither Pulumi nor its credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.release import load_release
from infra.spec.section import nearest, read_document, refuse, validate
from infra.spec.settings.rules import Context, violations_of
from infra.spec.settings.stack import StackSettings
from infra.spec.yaml_text import KeyPath

PROJECT = "ray-train-platform"
"""Name of the Pulumi project."""

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
STACK_FILES = Path(__file__).parents[2] / "stacks"
"""Pulumi's own files, one per stack: where its secrets provider keeps its key."""

TEST_TEMPLATE = "test.yaml.template"


def environment_names(directory: Path = ENVIRONMENTS) -> tuple[str, ...]:
    """Names of the environments, sorted."""
    return tuple(file.stem for file in sorted(directory.glob("*.yaml")))


def load_environment(environment: str, *, directory: Path = ENVIRONMENTS) -> StackSettings:
    """Read and validate the settings of an environment, without Pulumi.

    Raises:
        SettingsError: unknown environment, or an invalid file; names file, key, value and rule of every violation.
    """
    known = environment_names(directory)
    path = directory / f"{environment}.yaml"
    if environment not in known:
        is_name = environment == Path(environment).stem != ""
        raise SettingsError(
            f"unknown environment {environment!r} ({nearest(environment, known) if known else 'none exist'})",
            remedy=f"create {path}"
            if is_name
            else f"name it without folder and ending, as ENV={Path(environment).stem or known[0]}",
        )
    document = read_document(path)
    settings = from_mapping(document.value, file=path.name, places=document.places())
    if settings.environment.name != environment:
        raise SettingsError(
            f"{path.name}: environment.name = {settings.environment.name}: must equal the file's name, {environment}",
            remedy=f"set environment.name: {environment}",
        )
    return settings


def from_mapping(
    mapping: Mapping[str, Any], *, file: str, places: Mapping[KeyPath, str] | None = None
) -> StackSettings:
    """Validate settings: one entry per section.

    Args:
        mapping: sections by name, as plain data.
        file: name of the settings' file in messages.
        places: places of the keys in the file, e.g. `line 12`.

    Raises:
        SettingsError: names file, key, value, rule and nearest valid name for every violation.
    """
    settings = validate(StackSettings, mapping, file=file, places=places or {})
    refuse(file, violations_of(Context(settings, load_catalog(), load_release())), places=places or {})
    return settings


def check_account(settings: StackSettings, account: str) -> None:
    """Refuse an AWS account that aws.allowed_accounts does not list.

    Raises:
        RefusedError: the account is not allowed.
    """
    allowed = settings.aws.allowed_accounts
    if account not in allowed:
        raise RefusedError(
            f"AWS account {account} may not hold environment {settings.environment.name}: "
            f"aws.allowed_accounts = {', '.join(allowed)}",
            remedy="use other credentials, or add the account to the environment's file",
        )


def render_test_environment(
    *, name: str, owner: str, account: str, purpose: str, expires: datetime, budget_usd: float
) -> str:
    """The settings file of a disposable test cluster.

    Args:
        name: name of the environment, e.g. test-4711.
        owner: email address of the owner.
        account: the only allowed AWS account.
        purpose: what the cluster is for, a tag of its resources.
        expires: the time from which `up` refuses it, which is also a tag of its resources; with a time zone.
        budget_usd: US dollars per month.

    Raises:
        ValueError: `expires` has no time zone, or a value has characters that YAML could interpret.
    """
    if expires.tzinfo is None:
        raise ValueError(f"expires={expires.isoformat()} needs a time zone")
    for value in (name, owner, account, purpose):
        if not re.fullmatch(r"[\w@.+-]+", value):
            raise ValueError(f"{value!r} must consist of letters, digits and @.+-_")
    template = Template((ENVIRONMENTS / TEST_TEMPLATE).read_text(encoding="utf-8"))
    return template.substitute(
        name=name,
        owner=owner,
        account=account,
        purpose=purpose,
        expires=expires.isoformat(),
        budget_usd=f"{budget_usd:g}",
    )
