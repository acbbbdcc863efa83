"""No secret in what people and programs read."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence

from infra.policy import tokens
from infra.policy.graph import Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule

_SECRET_NAME = re.compile(r"(?i)(passw(or)?d|secret(?!_?(arn|name))|private_?key|access_?key|token|credential)")
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"  # PEM, RFC 7468
    r"|\b(AKIA|ASIA)[A-Z2-7]{16}\b"  # IAM unique identifiers of access keys
    r"|://[^/\s:@]+:[^/\s@]+@"  # user information with a password in a URL, RFC 3986
)


@stack_rule(remedy="export the ARN of the secret, and let its reader fetch it")
def outputs_hold_no_secrets(graph: Graph) -> Iterator[Breach]:
    """No output is a password, a key or a token: outputs are printed, stored in state and handed to every job."""
    for stack in graph.of(tokens.STACK):
        for path, value in _leaves(stack.properties, ""):
            if isinstance(value, str) and (_SECRET_NAME.search(path) or _SECRET_VALUE.search(value)):
                yield Breach(stack, f"output {path} looks like a secret")


@resource_rule(tokens.DATABASE, remedy="set manage_master_user_password=True and no password")
def database_passwords_are_managed(database: Subject) -> Iterator[str]:
    """RDS makes and rotates the master password in Secrets Manager; no program and no state ever holds it."""
    if database.has("password"):
        yield "has a password of the program's"
    if not database.says("manageMasterUserPassword", True):
        yield "manageMasterUserPassword is not set"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="let the node fetch the secret with its role")
def user_data_holds_no_secrets(template: Subject) -> Iterator[str]:
    """User data is readable by everything on the node and by everybody who may describe it."""
    data = template.get("userData")
    if isinstance(data, str) and _SECRET_VALUE.search(b64decode(data).decode("utf-8", errors="replace")):
        yield "its user data holds a secret"


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _leaves(member, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, member in enumerate(value):
            yield from _leaves(member, f"{path}.{index}")
    else:
        yield path, value
