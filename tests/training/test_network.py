"""The interface that reaches an address."""

from __future__ import annotations

import pytest

from training.network import interface_towards


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_this_machine_is_reached_over_loopback(address: str) -> None:
    assert interface_towards(address) == "lo"


def test_a_name_that_does_not_resolve_has_no_interface() -> None:
    assert interface_towards("no-such-host.invalid") is None
