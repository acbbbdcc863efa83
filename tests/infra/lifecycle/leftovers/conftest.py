"""Moto's account, its clients, and three owners with the same kinds of resources."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from moto import mock_aws

from infra.lifecycle.account.aws import Clients
from tests.infra.lifecycle.leftovers.moto_gaps import filled
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, Owner, stack_tags
from tests.infra.lifecycle.leftovers.wire import Wire, make_session, watched

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXPIRED = "2029-12-31T23:59:59+00:00"


@pytest.fixture(scope="session")
def shared_wire() -> Wire:
    """The wire of the shared clients."""
    return Wire()


@pytest.fixture(scope="session")
def shared_clients(shared_wire: Wire) -> Clients:
    """Clients for all tests: making one takes longer than most of them."""
    return Clients(shared_wire.attach(make_session()), account=ACCOUNT)


@pytest.fixture
def wire(shared_wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """Moto's account, empty, and what goes over the wire to it; botocore retries without waiting."""
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    with mock_aws(), filled(), watched(shared_wire):
        yield shared_wire


@pytest.fixture
def clients(shared_clients: Clients, wire: Wire) -> Clients:
    """Clients of that account."""
    return shared_clients


@pytest.fixture
def ours(clients: Clients) -> Owner:
    """A test cluster that has expired."""
    return Owner(environment="test-1", tags=stack_tags("test-1", kind="test", expires=EXPIRED), clients=clients)


@pytest.fixture
def rival(clients: Clients) -> Owner:
    """Another environment, whose names begin with ours."""
    return Owner(environment="test-1-extra", tags=stack_tags("test-1-extra", kind="dev"), clients=clients)


@pytest.fixture
def stranger(clients: Clients) -> Owner:
    """Somebody without our tags, whose names begin like ours too."""
    return Owner(environment="test-12", tags={}, clients=clients)


@pytest.fixture
def commands(clients: Clients, shared_wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands use these clients, and find no `pulumi`."""
    session = shared_wire.attach(make_session())
    for module in ("leftovers", "reaper"):
        name = f"infra.lifecycle.commands.{module}"
        monkeypatch.setattr(f"{name}.boto3", SimpleNamespace(Session=lambda **_: session))
        monkeypatch.setattr(f"{name}.Clients", lambda *_, **__: clients)
    monkeypatch.setenv("PATH", "/nonexistent")
