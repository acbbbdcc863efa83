"""Addresses of a sandbox with real nodes."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.node.addresses import RANGES, Addresses, free_addresses, name_of
from infra.lifecycle.sandbox.node.request import MOST_NODES
from infra.spec.errors import RefusedError


def test_a_range_that_is_routed_is_left_alone() -> None:
    assert free_addresses([]).range == RANGES[0]
    assert free_addresses([IPv4Network("10.208.7.0/24"), IPv4Network("10.209.0.0/16")]).range == RANGES[2]
    with pytest.raises(RefusedError, match=r"(?s)10\.208\.0\.0/16 to 10\.223\.0\.0/16 are in use.*: .*ip -4 route"):
        free_addresses([IPv4Network("10.0.0.0/8")])


def test_no_two_addresses_are_the_same() -> None:
    addresses = Addresses(RANGES[0])
    first = [addresses.host, addresses.services, *(addresses.node(index) for index in range(MOST_NODES))]
    networks = [addresses.pods(index) for index in range(MOST_NODES)]
    assert len(set(first)) == len(first)
    assert len(set(networks)) == len(networks)
    assert not any(IPv4Address(address) in network for address in first for network in networks)
    assert all(network.subnet_of(addresses.range) for network in networks)


def test_the_name_of_a_sandbox_follows_from_its_folder_and_fits_a_link(tmp_path: Path) -> None:
    assert name_of(tmp_path / "a") == name_of(tmp_path / "b" / ".." / "a")
    assert name_of(tmp_path / "a") != name_of(tmp_path / "b")
    assert len(name_of(tmp_path)) <= 15
