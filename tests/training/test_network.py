"""The interface that reaches an address."""

from __future__ import annotations

from training.network import interface_towards


def test_this_machine_is_reached_over_loopback_and_a_name_that_does_not_resolve_over_nothing() -> None:
    assert interface_towards("127.0.0.1") == interface_towards("localhost") == "lo"
    assert interface_towards("no-such-host.invalid") is None
