"""Which network NCCL's log names."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.conformance.transport import networks_in, sent_bytes

HOST = "w-1:79:79 [0] NCCL INFO"


@pytest.mark.parametrize(
    ("lines", "networks"),
    [
        (
            [f"{HOST} NET/OFI Selected Provider is efa (found 4 nics)", f"{HOST} Using network AWS Libfabric"],
            ("efa", "libfabric"),
        ),
        ([f"{HOST} NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)"], ("efa",)),
        ([f"{HOST} Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA"], ("libfabric",)),
        ([f"{HOST} NET/Socket : Using [0]eth0:10.0.1.7<0>", f"{HOST} Using network Socket"], ("socket",)),
        ([f"{HOST} NET/OFI Selected provider is tcp;ofi_rxm (found 1 nics)"], ("tcp;ofi_rxm",)),
        ([f"{HOST} Channel 00 : 0[0] -> 1[1] via P2P/IPC"], ()),
        ([], ()),
    ],
)
def test_the_networks_of_a_log_are_found(lines: list[str], networks: tuple[str, ...]) -> None:
    assert networks_in(lines) == networks


def test_the_bytes_of_all_devices_of_a_node_are_added_up(tmp_path: Path) -> None:
    for device, sent in {"rdmap0s31": "7", "rdmap1s31": "11"}.items():
        counters = tmp_path / device / "ports" / "1" / "hw_counters"
        counters.mkdir(parents=True)
        (counters / "tx_bytes").write_text(f"{sent}\n")
        (counters / "rdma_write_bytes").write_text("100\n")
        (counters / "rx_bytes").write_text("1000000\n")
    assert sent_bytes(tmp_path) == 218


def test_a_pod_without_counters_does_not_claim_that_no_byte_was_sent(tmp_path: Path) -> None:
    assert sent_bytes(tmp_path) is None
