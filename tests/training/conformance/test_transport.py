"""Which network NCCL's log names, and which servers a pod reaches: real sockets."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.engines.ports import free_port
from training.conformance.network import network_facts
from training.conformance.transport import networks_in, sent_bytes


def test_the_networks_of_a_log_are_found() -> None:
    cases: list[tuple[list[str], tuple[str, ...]]] = [
        (["NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric"], ("efa", "libfabric")),
        (["NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)"], ("efa",)),
        (["Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA"], ("libfabric",)),
        (["NET/Socket : Using [0]eth0:10.0.1.7<0>", "Using network Socket"], ("socket",)),
        (["NET/OFI Selected provider is tcp;ofi_rxm (found 1 nics)"], ("tcp;ofi_rxm",)),
        (["Channel 00 : 0[0] -> 1[1] via P2P/IPC"], ()),
        ([], ()),
    ]
    for lines, networks in cases:
        assert networks_in([f"w-1:79:79 [0] NCCL INFO {line}" for line in lines]) == networks


def test_the_bytes_of_all_devices_of_a_node_are_added_up(tmp_path: Path) -> None:
    for device, sent in {"rdmap0s31": "7", "rdmap1s31": "11"}.items():
        counters = tmp_path / device / "ports" / "1" / "hw_counters"
        counters.mkdir(parents=True)
        (counters / "tx_bytes").write_text(f"{sent}\n")
        (counters / "rdma_write_bytes").write_text("100\n")
        (counters / "rx_bytes").write_text("1000000\n")
    assert sent_bytes(tmp_path) == 218
    assert sent_bytes(tmp_path / "none") is None, "without counters it is not known that no byte was sent"


def test_which_servers_listen_do_not_listen_or_have_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = f"127.0.0.1:{server.getsockname()[1]}"
        facts = network_facts(allowed=listening, denied=f"localhost:{free_port()}")
        assert (facts.allowed_error, facts.denied_error) == ("", "Connection refused")
        assert facts.denied_is_known
        facts = network_facts(allowed=listening, denied="nothing.invalid:80")
    assert facts.denied_error
    assert not facts.denied_is_known
