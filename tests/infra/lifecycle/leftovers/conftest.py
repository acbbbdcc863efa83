"""Moto's account, its clients, and three owners with the same kinds of resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from moto import mock_aws

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.inventory import take
from tests.infra.lifecycle.leftovers.moto_gaps import filled
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, stack_tags
from tests.infra.lifecycle.leftovers.wire import Wire, make_session, watched

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXPIRED = "2029-12-31T23:59:59+00:00"


@pytest.fixture(scope="session")
def shared_wire() -> Wire:
    return Wire()


@pytest.fixture(scope="session")
def shared_clients(shared_wire: Wire) -> Clients:
    """Clients for all tests: making one takes longer than most of them."""
    return Clients(shared_wire.attach(make_session()), account=ACCOUNT)


@contextmanager
def empty_account(wire: Wire) -> Iterator[None]:
    """Moto's account, empty, and what goes over the wire to it; botocore retries without waiting."""
    with pytest.MonkeyPatch.context() as patch, mock_aws(), filled(), watched(wire):
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
        yield


@pytest.fixture
def wire(shared_wire: Wire) -> Iterator[Wire]:
    with empty_account(shared_wire):
        yield shared_wire


@pytest.fixture
def clients(shared_clients: Clients, wire: Wire) -> Clients:
    return shared_clients


def owners(clients: Clients) -> tuple[Owner, Owner, Owner]:
    """An expired test cluster, another environment whose names begin with its, and somebody without our tags whose names do too."""
    tags = stack_tags("test-1", kind="test", expires=EXPIRED)
    return (
        Owner(environment="test-1", tags=tags, clients=clients),
        Owner(environment="test-1-extra", tags=stack_tags("test-1-extra", kind="dev"), clients=clients),
        Owner(environment="test-12", tags={}, clients=clients),
    )


def everything(clients: Clients) -> set[Key]:
    found, unknown = take(clients, [REGION])
    assert unknown == ()
    return {one.key for one in found}


@pytest.fixture
def ours(clients: Clients) -> Owner:
    return owners(clients)[0]


@pytest.fixture
def rival(clients: Clients) -> Owner:
    return owners(clients)[1]


@pytest.fixture
def stranger(clients: Clients) -> Owner:
    return owners(clients)[2]


@pytest.fixture
def commands(clients: Clients, shared_wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands use these clients, and find no `pulumi`."""
    session = shared_wire.attach(make_session())
    for module in ("leftovers", "reaper"):
        name = f"infra.lifecycle.commands.{module}"
        monkeypatch.setattr(f"{name}.boto3", SimpleNamespace(Session=lambda **_: session))
        monkeypatch.setattr(f"{name}.Clients", lambda *_, **__: clients)
    monkeypatch.setenv("PATH", "/nonexistent")
