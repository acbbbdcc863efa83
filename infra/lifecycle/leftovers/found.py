"""A resource as an AWS service lists it, and the calls that remove one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from botocore import xform_name
from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client, Clients

GLOBAL_REGION = "us-east-1"
"""Region whose endpoints serve IAM and AWS Budgets (AWS general reference, "Service endpoints")."""


class Key(NamedTuple):
    """Identity of a resource within an account.

    Attributes:
        kind: name of its kind.
        id: what its service calls it.
        region: region that it was found in; the inventory sets it.
    """

    kind: str
    id: str
    region: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A resource that a service lists.

    Attributes:
        id: what the API that removes it takes, and Pulumi's ID where it has one.
        kind: name of its kind; the inventory sets it.
        region: region that it was found in; the inventory sets it.
        name: physical name, if that is another one than the ID, or the name of what it was made from.
        tags: its tags.
        parents: resources that it is a part of: it belongs to the stack of one of them, unless its tags say otherwise.
        holds: resources that cannot be deleted before it. It belongs to the stack of one of them if its own tags name no stack, but
            a cluster: nodes of several stacks may have joined that.
        is_going: whether its removal has begun, so that only waiting helps.
        facts: what its price and its removal depend on.
    """

    id: str
    kind: str = ""
    region: str = ""
    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    parents: tuple[Key, ...] = ()
    holds: tuple[Key, ...] = ()
    is_going: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Its identity within the account."""
        return Key(self.kind, self.id, self.region)

    @property
    def label(self) -> str:
        """ID, and the name where it says more: its own, or that of its tag `Name`."""
        name = self.name or self.tags.get("Name", "")
        return f"{self.id} ({name})" if name and name != self.id else self.id


@dataclass(frozen=True)
class Place:
    """A region of an account."""

    clients: Clients
    region: str

    @property
    def account(self) -> str:
        """The account."""
        return self.clients.account

    def client(self, service: str) -> Client:
        """The client of a service here."""
        return self.clients.of(service, self.region)


_CLI_NAMES: Mapping[str, str] = {"s3": "s3api"}
"""Services that the AWS CLI calls otherwise than boto3."""

_REFUSALS = ("Unsuccessful", "Errors")
"""Parts of a successful answer with the items that were refused: of EC2's DeleteVpcEndpoints and DeleteFlowLogs, and of S3's
DeleteObjects."""


@dataclass(frozen=True)
class Call:
    """One request that changes something.

    Attributes:
        service: name of the service in boto3.
        operation: name of the operation in its API.
        parameters: its parameters.
    """

    service: str
    operation: str
    parameters: Mapping[str, Any]

    def run(self, place: Place) -> None:
        """Make the request.

        Raises:
            BotoCoreError, ClientError: AWS refuses it, or does not answer.
        """
        answer = getattr(place.client(self.service), xform_name(self.operation))(**self.parameters)
        for refused in (one for key in _REFUSALS for one in answer.get(key) or ()):
            raise ClientError({"Error": refused.get("Error", refused)}, self.operation)

    def command(self, region: str) -> str:
        """The same request as a command of the AWS CLI."""
        words = ["aws", _CLI_NAMES.get(self.service, self.service), xform_name(self.operation, "-")]
        return " ".join([*words, "--region", region, *self._flags()])

    def _flags(self) -> Iterator[str]:
        for name, value in self.parameters.items():
            flag = xform_name(name, "-")
            match value:
                case bool():
                    yield f"--{flag}" if value else f"--no-{flag}"
                case list() if all(isinstance(one, str) for one in value):
                    yield f"--{flag} {shlex.join(value)}"
                case list() | dict():
                    yield f"--{flag} {shlex.quote(json.dumps(value))}"
                case _:
                    yield f"--{flag} {shlex.quote(str(value))}"
