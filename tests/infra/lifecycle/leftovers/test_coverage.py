"""The inventory covers what the program and others make, and finds it; the policies cover the inventory."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.deployer.policy import TABLE
from infra.lifecycle.leftovers.audit import commands_of
from infra.lifecycle.leftovers.coverage import KIND_OF, MADE_BY_OTHERS, PART_OF
from infra.lifecycle.leftovers.found import Found
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.keeping import reason_to_keep
from infra.lifecycle.leftovers.ownership import owned
from infra.lifecycle.leftovers.policy import audit_policy, reaper_policy
from infra.lifecycle.leftovers.removal import Pace, Removal
from infra.spec.protection import EnvironmentKind
from tests.infra.lifecycle.leftovers.conftest import NOW, empty_account, owners
from tests.infra.lifecycle.leftovers.planter import REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS, plant_stack
from tests.infra.lifecycle.leftovers.wire import Wire

GRAPHS = Path(__file__).parents[2] / "preview" / "graphs"
ENVIRONMENTS = ("dev", "staging", "prod", "test")
MANAGED_POLICY_CHARACTERS = 6_144
SERVICES = {
    "auto-scaling": "autoscaling",
    "cloudwatch-logs": "logs",
    "efs": "elasticfilesystem",
    "elastic-load-balancing": "elasticloadbalancing",
    "elastic-load-balancing-v2": "elasticloadbalancing",
    "eventbridge": "events",
    "secrets-manager": "secretsmanager",
}
"""Prefix of IAM actions by botocore's name of the service, where they differ."""

ACTIONS = {
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:DeleteObjects": "s3:DeleteObjectVersion",
    "budgets:DescribeBudgets": "budgets:ViewBudget",
    "budgets:DeleteBudget": "budgets:ModifyBudget",
}
"""IAM action by operation, where they differ (Service Authorization Reference)."""


def resources_of(environment: str) -> Mapping[str, Mapping[str, object]]:
    """The recorded resources of an environment by URN's type and name."""
    found: Mapping[str, Mapping[str, object]] = json.loads((GRAPHS / f"{environment}.json").read_text())
    return found


def type_of(urn: str) -> str:
    return urn.partition("::")[0].rpartition("$")[2]


def test_every_type_has_a_kind_or_a_reason_and_every_kind_is_made_by_the_program_or_by_others() -> None:
    types = {type_of(urn) for environment in ENVIRONMENTS for urn in resources_of(environment)}
    made = {type_ for type_ in types if type_.startswith("aws:")}
    assert len(made) > 40
    assert made <= set(KIND_OF) | set(PART_OF)
    assert set(TABLE) <= set(KIND_OF) | set(PART_OF), "also of types that no environment has"
    assert not set(KIND_OF) & set(PART_OF)
    assert set(KIND_OF) | set(PART_OF) <= set(TABLE), "and of no others"
    assert set(KIND_OF.values()) | set(MADE_BY_OTHERS) == set(KINDS)
    assert not set(KIND_OF.values()) & set(MADE_BY_OTHERS)


def test_what_pulumi_retains_is_kept() -> None:
    for environment in ENVIRONMENTS:
        kind = EnvironmentKind(environment)
        retained = {type_of(urn) for urn, one in resources_of(environment).items() if one.get("retain_on_delete")}
        why = f"retained in {kind}: it holds data"
        kept = {name for name in KINDS if reason_to_keep(Found(id="x", kind=name), kind) == why}
        assert kept == {KIND_OF[type_] for type_ in retained if type_ in KIND_OF}, environment


def actions_of(wire: Wire) -> set[str]:
    found = set()
    for service, _, operation in (one.partition(".") for one in wire.operations):
        action = f"{SERVICES.get(service, service)}:{operation}"
        found.add(ACTIONS.get(action, action))
    return found


def test_the_policies_allow_every_request_and_little_else(ours: Owner, wire: Wire) -> None:
    planter = plant_stack(ours)
    wire.operations.clear()
    removal = Removal(
        stack=ours.stack,
        clients=ours.clients,
        regions=(REGION,),
        pace=Pace(limit=0, wait=lambda _: None, clock=lambda: 0),
        now=lambda: NOW,
        say=lambda _: None,
        known=frozenset(planter.keys),
    )
    assert removal.run() == ()
    (reads,), (everything,) = (one["Statement"] for one in (audit_policy(), reaper_policy()))
    used = actions_of(wire)
    assert used <= set(everything["Action"])
    assert set(everything["Action"]) - used == {
        "ec2:DescribeRegions",
        "eks:UpdateClusterConfig",
        "rds:DeleteDBInstanceAutomatedBackup",
        "rds:ModifyDBInstance",
        "s3:DeleteObject",
        "sts:GetCallerIdentity",
        "tag:GetResources",
    }, "needed for other regions, protected and retained databases, protected clusters and delete markers"
    assert not [one for one in reads["Action"] if one.partition(":")[2].startswith(("Delete", "Modify", "Release"))]
    for statement in (reads, everything):
        assert sum(len(action) + 3 for action in statement["Action"]) + 120 < MANAGED_POLICY_CHARACTERS


def test_a_leftover_of_every_kind_is_found_and_not_its_lookalikes(shared_wire: Wire, shared_clients: Clients) -> None:
    assert set(PLANTS) == set(KINDS)
    for kind in PLANTS:
        with empty_account(shared_wire):
            _check(kind, shared_clients)


def _check(kind: str, clients: Clients) -> None:
    ours, rival, _ = made = owners(clients)
    planters = [Planter(owner) for owner in made]
    for planter in planters:
        PLANTS[kind](planter)
    mine, theirs, nobodys = (planter.keys for planter in planters)
    assert kind in {key.kind for key in mine}
    found, unknown = take(clients, [REGION], [KINDS[name] for name in sorted({key.kind for key in mine})])
    assert unknown == (), kind
    assert mine | theirs | nobodys <= {one.key for one in found}, kind
    assert set(owned(found, ours.stack)) == mine, kind
    assert set(owned(found, rival.stack)) == theirs, kind
    for one in (one for one in found if one.key in mine):
        words = shlex.split(commands_of(one, clients).remove.replace("$(", " ").replace(")", " "))
        assert words[0] in {"aws", "while"}, kind
        assert {"--region", REGION} <= set(words), kind
        assert any(part in words for part in (one.id, one.id.partition(":")[2])), kind
