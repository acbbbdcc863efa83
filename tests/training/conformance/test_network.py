"""Which servers a pod reaches: real sockets."""

from __future__ import annotations

import socket

from tests.engines.ports import free_port
from training.conformance.network import network_facts


def test_which_servers_listen_do_not_listen_or_have_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = f"127.0.0.1:{server.getsockname()[1]}"
        facts = network_facts(allowed=listening, denied=f"localhost:{free_port()}")
        assert (facts.allowed_error, facts.denied_error) == ("", "Connection refused")
        assert facts.denied_is_known
        facts = network_facts(allowed=listening, denied="nothing.invalid:80")
    assert facts.denied_error
    assert not facts.denied_is_known
