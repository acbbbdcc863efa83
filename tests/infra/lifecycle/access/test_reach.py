"""Whether this machine reaches an API server, by endpoint, address and programs."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest

from infra.lifecycle.access.reach import ThisMachine, obstacles
from infra.lifecycle.account.caller import Caller
from infra.spec.errors import SettingsError
from tests.engines.ports import free_port
from tests.infra.aws.graphs import settings_of

ENDPOINT = "https://0123456789abcdef.gr7.us-east-1.eks.amazonaws.com"
INSIDE, OUTSIDE = "198.51.100.7", "203.0.113.7"


@dataclass(frozen=True)
class Machine:
    """A machine with an address, which reaches some URLs."""

    address: str | None = INSIDE
    reached: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def connect(self, url: str) -> str | None:
        return None if url in self.reached else "timed out"

    def public_address(self) -> IPv4Address | None:
        return IPv4Address(self.address) if self.address else None

    def missing_programs(self) -> tuple[str, ...]:
        return self.missing


NO_PLUGIN = ("session-manager-plugin",)


@pytest.mark.parametrize(
    ("environment", "endpoint", "machine", "message", "remedy"),
    [
        ("dev", None, Machine(), None, ""),
        ("dev", None, Machine(address=None), None, ""),
        ("dev", None, Machine(OUTSIDE), f"address is {OUTSIDE}; cluster.public_cidrs is 198.51.100.0/24", OUTSIDE),
        ("dev", ENDPOINT, Machine(OUTSIDE, reached=(ENDPOINT,)), None, ""),
        ("dev", ENDPOINT, Machine(OUTSIDE), f"{ENDPOINT} does not answer: timed out", OUTSIDE),
        ("dev", ENDPOINT, Machine(), f"{ENDPOINT} does not answer: timed out", "network and proxy"),
        # A tunnel to an existing cluster needs nodes of the stack, which come with the first update.
        ("existing-cluster", ENDPOINT, Machine(), f"{ENDPOINT} does not answer: timed out", "RTP_API_SERVER"),
        ("prod", None, Machine(), None, ""),
        ("prod", None, Machine(missing=NO_PLUGIN), "a tunnel to it needs session-manager-plugin, not on PATH", ""),
        ("prod", ENDPOINT, Machine(), None, ""),
        ("prod", ENDPOINT, Machine(missing=NO_PLUGIN, reached=(ENDPOINT,)), None, ""),
    ],
)
def test_an_obstacle_is_named_before_anything_is_created(
    environment: str, endpoint: str | None, machine: Machine, message: str | None, remedy: str
) -> None:
    found = list(obstacles(settings_of(environment), endpoint, machine))
    assert len(found) == (message is not None)
    assert message is None or (message in found[0][0] and remedy in found[0][1])


def test_a_tunnel_of_the_users_own_is_tried_in_place_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    tunnel = "https://localhost:8443"
    monkeypatch.setenv("RTP_API_SERVER", tunnel)
    machine = Machine(reached=(tunnel,), missing=NO_PLUGIN)
    assert list(obstacles(settings_of("prod"), ENDPOINT, machine)) == []
    monkeypatch.setenv("RTP_API_SERVER", "localhost:8443")
    with pytest.raises(SettingsError, match=r"RTP_API_SERVER='localhost:8443' must be https://HOST:PORT"):
        list(obstacles(settings_of("prod"), ENDPOINT, machine))


def test_this_machine_reaches_a_listening_port_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert ThisMachine().connect(f"https://127.0.0.1:{listener.getsockname()[1]}") is None
    assert "refused" in str(ThisMachine().connect(f"https://127.0.0.1:{free_port()}"))


def test_a_session_belongs_to_its_role_whatever_the_roles_path() -> None:
    sso = "AWSReservedSSO_Admin_0123456789abcdef"
    roles = [f"arn:aws:iam::111122223333:role/{name}" for name in ("admin", f"aws-reserved/sso.amazonaws.com/{sso}")]
    ours = {"sts::111122223333:assumed-role/admin/alice", f"sts::111122223333:assumed-role/{sso}/alice"}
    others = {
        "sts::111122223333:assumed-role/other/alice",
        "sts::444455556666:assumed-role/admin/alice",
        "iam::111122223333:user/admin",
        "iam::111122223333:root",
    }
    assert {one for one in ours | others if Caller("111122223333", f"arn:aws:{one}").is_one_of(roles)} == ours
