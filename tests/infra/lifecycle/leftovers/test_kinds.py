"""Each kind of leftover, planted in turn beside two that look alike."""

from __future__ import annotations

import shlex

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.audit import commands_of
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.ownership import owned
from tests.infra.lifecycle.leftovers.conftest import empty_account, owners
from tests.infra.lifecycle.leftovers.planter import REGION, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS
from tests.infra.lifecycle.leftovers.wire import Wire


def test_a_leftover_of_every_kind_is_found_with_its_command_and_what_looks_alike_is_not_ours(
    shared_wire: Wire, shared_clients: Clients
) -> None:
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
