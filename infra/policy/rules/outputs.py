"""Secrets: none in outputs, inputs and user data."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence

from infra.policy import tokens
from infra.policy.graph import Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule

_SECRET_NAME = re.compile(r"(?i)(passw(or)?d|secret(?!_?(arn|name))|private_?key|access_?key|token|credential)")
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"  # PEM, RFC 7468
    r"|\b(AKIA|ASIA)[A-Z2-7]{16}\b"  # IAM unique identifiers of access keys
    r"|://[^/\s:@]+:[^/\s@]+@"  # user information with a password in a URL, RFC 3986
)


@stack_rule(remedy="export the ARN of the secret instead")
def outputs_hold_no_secrets(graph: Graph) -> Iterator[Violation]:
    """No output is a password, a key or a token; outputs are printed and read by every job."""
    for stack in graph.of_type(tokens.STACK):
        for path, value in _leaves(stack.properties, ""):
            if isinstance(value, str) and (_SECRET_NAME.search(path) or _SECRET_VALUE.search(value)):
                yield Violation(stack, f"output {path} looks like a secret")


@resource_rule(tokens.DATABASE, remedy="set manage_master_user_password=True and no password")
def database_passwords_are_managed(database: Resource) -> Iterator[str]:
    """RDS manages the master password in Secrets Manager, so that it is in no program or state."""
    if database.is_set("password"):
        yield "sets a password"
    if not database.is_one_of("manageMasterUserPassword", True):
        yield "manageMasterUserPassword is not set"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="fetch the secret on the node with its role")
def user_data_holds_no_secrets(template: Resource) -> Iterator[str]:
    """User data holds no secrets, because every process on the node can read it."""
    data = template.get("userData")
    if isinstance(data, str) and _SECRET_VALUE.search(b64decode(data).decode("utf-8", errors="replace")):
        yield "has a secret in its user data"


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _leaves(member, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, member in enumerate(value):
            yield from _leaves(member, f"{path}.{index}")
    else:
        yield path, value
