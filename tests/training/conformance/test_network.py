"""Which servers a pod reaches: real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.engines.ports import free_port
from training.conformance.network import network_facts


@pytest.fixture
def listening() -> Iterator[str]:
    """A server on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_listens_is_reached_and_one_that_does_not_is_not(listening: str) -> None:
    facts = network_facts(allowed=listening, denied=f"localhost:{free_port()}")
    assert (facts.allowed_error, facts.denied_error) == ("", "Connection refused")
    assert facts.denied_is_known


def test_a_name_without_an_address_is_told_from_a_server_that_is_not_reached(listening: str) -> None:
    facts = network_facts(allowed=listening, denied="nothing.invalid:80")
    assert facts.denied_error
    assert not facts.denied_is_known
