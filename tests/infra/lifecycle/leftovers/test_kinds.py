"""Each kind of leftover, planted in turn beside two that look alike."""

from __future__ import annotations

import shlex

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.audit import commands_of
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.ownership import owned
from tests.infra.lifecycle.leftovers.planter import REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS


@pytest.mark.parametrize("kind", PLANTS)
def test_a_leftover_is_found_with_its_command_and_what_looks_alike_is_not_ours(
    kind: str, clients: Clients, ours: Owner, rival: Owner, stranger: Owner
) -> None:
    planters = [Planter(owner) for owner in (ours, rival, stranger)]
    for planter in planters:
        PLANTS[kind](planter)
    mine, theirs, nobodys = (planter.keys for planter in planters)
    assert kind in {key.kind for key in mine}

    found, unknown = take(clients, [REGION], [KINDS[name] for name in sorted({key.kind for key in mine})])
    assert unknown == ()
    assert mine | theirs | nobodys <= {one.key for one in found}
    assert set(owned(found, ours.stack)) == mine
    assert set(owned(found, rival.stack)) == theirs
    for one in (one for one in found if one.key in mine):
        words = shlex.split(commands_of(one, clients).remove.replace("$(", " ").replace(")", " "))
        assert words[0] in {"aws", "while"}
        assert {"--region", REGION} <= set(words)
        assert any(part in words for part in (one.id, one.id.partition(":")[2]))


def test_every_kind_can_be_planted() -> None:
    assert set(PLANTS) == set(KINDS)
