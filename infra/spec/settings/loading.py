"""Load and validate an environment's settings, from its Pulumi stack file or from Pulumi's own configuration.

The files are Pulumi stack files: `config` has one key per section, in the project's namespace. They are read without Pulumi, so graph,
cost and job submission need neither Pulumi nor its credentials.
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
from infra.spec.section import Violation, nearest, read_document, refuse, validate
from infra.spec.settings.rules import Context, violations_of
from infra.spec.settings.stack import StackSettings
from infra.spec.yaml_text import KeyPath

NAMESPACE = "ray-train-platform"
"""Configuration namespace of the project: the name of the Pulumi project."""

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
TEST_TEMPLATE = "test.yaml.template"

_PULUMI_KEYS = frozenset({"config", "encryptionsalt", "secretsprovider", "encryptedkey", "environment"})


def environment_names(directory: Path = ENVIRONMENTS) -> tuple[str, ...]:
    """Names of the environments that have a stack file, sorted."""
    files = sorted(directory.glob("Pulumi.*.yaml"))
    return tuple(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files)


def load_environment(environment: str, *, directory: Path = ENVIRONMENTS) -> StackSettings:
    """Read and validate the settings of an environment, without Pulumi.

    Raises:
        SettingsError: unknown environment, or an invalid file; names file, key, value and rule of every violation.
    """
    known = environment_names(directory)
    if environment not in known:
        raise SettingsError(
            f"unknown environment {environment!r} ({nearest(environment, known) if known else 'none exist'})",
            remedy=f"create {directory / f'Pulumi.{environment}.yaml'}",
        )
    path = directory / f"Pulumi.{environment}.yaml"
    document = read_document(path)
    places = {
        (keys[1].removeprefix(f"{NAMESPACE}:"), *keys[2:]): place
        for keys, place in document.places().items()
        if keys[1:]
    }
    return from_mapping(sections_of(document.value, file=path.name), file=path.name, places=places)


def sections_of(document: Mapping[str, Any], *, file: str) -> dict[str, Any]:
    """The sections of a stack file, without the namespace.

    Raises:
        SettingsError: `config` is missing, or the file has a key that neither Pulumi nor this project reads.
    """
    strays = sorted(set(document) - _PULUMI_KEYS)
    if strays:
        refuse(
            file,
            [Violation(key, None, "unknown key of a Pulumi stack file", nearest(key, _PULUMI_KEYS)) for key in strays],
        )
    config = document.get("config")
    if not isinstance(config, dict):
        raise SettingsError(f"{file}: config must be a mapping of {NAMESPACE}:<section>")
    ours, others = {}, []
    for key, value in config.items():
        namespace, _, section = key.rpartition(":")
        if namespace == NAMESPACE:
            ours[section] = value
        elif namespace != "pulumi":
            others.append(Violation(f"config.{key}", None, f"unknown key; keys are {NAMESPACE}:<section>"))
    refuse(file, others)
    return ours


def from_mapping(
    mapping: Mapping[str, Any], *, file: str, places: Mapping[KeyPath, str] | None = None
) -> StackSettings:
    """Validate settings: one entry per section, without namespace.

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


def render_test_environment(*, name: str, owner: str, account: str, expires: datetime, budget_usd: float) -> str:
    """The stack file of a disposable test cluster.

    Args:
        name: name of the environment and the stack, e.g. test-4711.
        owner: email address of the owner.
        account: the only allowed AWS account.
        expires: when the reaper destroys it; with a time zone.
        budget_usd: US dollars per month.

    Raises:
        ValueError: `expires` has no time zone, or a value has characters that YAML could interpret.
    """
    if expires.tzinfo is None:
        raise ValueError(f"expires={expires.isoformat()} needs a time zone")
    for value in (name, owner, account):
        if not re.fullmatch(r"[\w@.+-]+", value):
            raise ValueError(f"{value!r} must consist of letters, digits and @.+-_")
    template = Template((ENVIRONMENTS / TEST_TEMPLATE).read_text(encoding="utf-8"))
    return template.substitute(
        name=name, owner=owner, account=account, expires=expires.isoformat(), budget_usd=f"{budget_usd:g}"
    )
