"""What plants for one owner: names, tags and clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.lifecycle.account.aws import Client, Clients
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.ownership import StackName
from infra.spec.settings.loading import PROJECT

REGION = "us-east-1"
ACCOUNT = "123456789012"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose resources are planted.

    Attributes:
        environment: name of the environment, and so of the cluster and everything with a fixed name.
        tags: tags of what the program makes; empty for a stranger whose names look alike.
        clients: clients of moto's account.
    """

    environment: str
    tags: Mapping[str, str]
    clients: Clients

    @property
    def stack(self) -> StackName:
        return StackName(self.environment, ACCOUNT)


def stack_tags(environment: str, **more: str) -> Mapping[str, str]:
    return {"platform": PROJECT, "stack": f"{PROJECT}/{environment}", "owner": "you@example.com", **more}


def pairs_of(tags: Mapping[str, str], *, prefix: str = "") -> list[dict[str, str]]:
    return [{f"{prefix}Key": key, f"{prefix}Value": value} for key, value in tags.items()]


def iam_document(action: str, **who_or_what: object) -> str:
    statement = {"Effect": "Allow", "Action": action, **who_or_what}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass
class Planter:
    """Plants for one owner, and notes what in `keys`; `ids` has the resource of each kind that others need."""

    owner: Owner
    keys: set[Key] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)

    def client(self, service: str) -> Client:
        return self.owner.clients.of(service, REGION)

    def note(self, kind: str, id_: str) -> str:
        self.keys.add(Key(kind, id_, REGION))
        return id_

    @property
    def cluster_name(self) -> str:
        return self.owner.stack.cluster

    @property
    def pairs(self) -> list[dict[str, str]]:
        return pairs_of(self.owner.tags)

    @property
    def controller_pairs(self) -> list[dict[str, str]]:
        """Tags of what a controller in the cluster makes; none for an owner without tags."""
        return pairs_of({f"kubernetes.io/cluster/{self.cluster_name}": "owned"} if self.owner.tags else {})

    @property
    def balancer_tags(self) -> Mapping[str, Any]:
        """The parameter with the tags of AWS Load Balancer Controller; none for an owner without tags."""
        return {"Tags": pairs_of({"elbv2.k8s.aws/cluster": self.cluster_name})} if self.owner.tags else {}

    def tagging(self, type_: str, *, by_controller: bool = False) -> Mapping[str, Any]:
        """EC2's parameter with the tags of a new resource; none for an owner without tags."""
        pairs = self.controller_pairs if by_controller else self.pairs
        return {"TagSpecifications": [{"ResourceType": type_, "Tags": pairs}]} if pairs else {}
