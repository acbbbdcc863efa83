"""Reports in the output of the job: what a run's log, NCCL's log and real sockets say, and the ranks of the fabric part under torchrun."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from observability.runlog import Event, RunEnded, RunLogWriter, WorkersFailed
from tests.engines.ports import free_port
from tests.processes import run_command
from tests.training.cli.command import ROOT
from tests.training.conformance.local_job import RANKS
from tests.training.runs import done_step, training_started
from training.conformance.all_reduce import bus_factor
from training.conformance.facts import (
    FABRIC_FILE,
    FabricFacts,
    ObjectFacts,
    PartReport,
    collected,
    read_line,
    write_line,
)
from training.conformance.network import network_facts
from training.conformance.run_facts import training_facts
from training.conformance.transport import networks_in, sent_bytes
from training.conformance.victim import KILLED_FILE
from training.device import FAKE_GPUS
from training.rundir import RunDirectory
from training.script.variables import OUTPUT_VARIABLE

FACTS = ObjectFacts(bucket="b", written_sha256="0" * 64, read_sha256="1" * 64)


def test_a_report_survives_the_log() -> None:
    done = PartReport(part="objects", seconds=1.5, facts=FACTS)
    failed = PartReport(part="fabric", seconds=0.5, error="PlatformError: two\nlines of 日本")
    lines = ["training …", write_line(done), "conformance: not JSON", write_line(failed), "  done"]
    assert all("\n" not in line for line in lines)
    assert collected(lines).parts == {"objects": done, "fabric": failed}


def test_the_newest_report_of_a_part_holds() -> None:
    """A lost submitter's next pod prints the log again, and a job that is retried runs all parts again."""
    again = PartReport(part="objects", seconds=2.0, facts=FACTS)
    assert collected([write_line(PartReport(part="objects", seconds=1.0, error="x")), write_line(again)]).parts == {
        "objects": again
    }


def test_a_report_of_another_version_is_no_report() -> None:
    assert read_line('conformance: {"part":"objects","seconds":1,"colour":"red"}') is None
    assert read_line("step 3/120") is None


def run_with(folder: Path, *events: Event) -> RunDirectory:
    with RunLogWriter(folder) as log:
        log.write(*events)
    return RunDirectory(folder)


def test_a_run_whose_rank_was_killed_has_its_starts_and_losses(tmp_path: Path) -> None:
    (tmp_path / KILLED_FILE).write_text(json.dumps({"rank": 1}))
    before = [done_step(number, loss=2.0) for number in range(1, 13)]
    after = [done_step(number, loss=1.0 if number < 16 else 0.5) for number in range(11, 21)]
    failed = WorkersFailed(attempt=0, reason="rank 1 was killed", restarts=True)
    ended = RunEnded(status="done", step=20)
    again = training_started(start_step=10)
    facts = training_facts(run_with(tmp_path, training_started(), *before, failed, again, *after, ended))
    assert (facts.starts, facts.killed_rank, facts.status, facts.steps) == ((0, 10), 1, "done", 20)
    assert (facts.first_loss, facts.resumed_loss, facts.last_loss) == (2.0, 1.0, 0.5)


def test_a_run_without_a_restart_has_no_loss_after_it(tmp_path: Path) -> None:
    facts = training_facts(run_with(tmp_path, training_started(), done_step(1)))
    assert (facts.resumed_loss, facts.killed_rank, facts.status) == (None, None, "")


def test_a_run_that_made_no_step_says_why(tmp_path: Path) -> None:
    ended = RunEnded(status="failed", step=0, message="no space left")
    with pytest.raises(ValueError, match="no space left"):
        training_facts(run_with(tmp_path, ended))


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
    (tmp_path / "none").mkdir()
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


_SIZE = 1 << 20


@pytest.mark.extended
def test_two_ranks_sum_and_read_what_one_of_them_has_written(tmp_path: Path) -> None:
    """With GPUs that do not exist, as in a sandbox, so that the ranks compute on the CPU."""
    words = ["-m", "training.conformance", "fabric", "--gpus", "--size-bytes", str(_SIZE)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    variables = {"PYTHONPATH": str(ROOT), OUTPUT_VARIABLE: str(tmp_path), FAKE_GPUS: "gpu-0,gpu-1"}
    done = run_command([*torchrun, *words], env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    facts = FabricFacts.model_validate(json.loads((tmp_path / FABRIC_FILE).read_text()))
    assert [one.rank for one in facts.ranks] == [0, 1]
    assert not facts.has_gpus
    assert {one.read_sha256 for one in facts.ranks} == {facts.written_sha256}
    measured = facts.all_reduce
    assert (measured.backend, measured.size_bytes, measured.is_correct) == ("gloo", _SIZE, True)
    assert measured.bus_bytes_per_second == _SIZE / measured.seconds * bus_factor(RANKS)
    assert [one.name for one in tmp_path.iterdir()] == [FABRIC_FILE], "the shared file is removed"


def test_the_bus_bandwidth_of_two_ranks_is_the_algorithms_and_of_many_almost_twice_that() -> None:
    assert bus_factor(2) == 1
    assert bus_factor(16) == 1.875
