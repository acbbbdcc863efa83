"""Ports for servers of tests."""

from __future__ import annotations

from infra.lifecycle.sandbox.processes import free_ports


def free_port() -> int:
    """A port of loopback that is free now."""
    return free_ports(1)[0]
