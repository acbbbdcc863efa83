"""Who waits for whom, from the dumps of torch's flight recorder."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from training import failures
from training.config.schema import ScaleSettings
from training.evidence import FOLDER
from training.flight_records import NCCL_SUFFIX, Collective, aborted, describe_waits, dump_file, entered, waits_in_words
from training.launch.task import WorkersFailedError
from training.recovery.causes import Cause

GRADIENTS = Collective(number=41, name="all_reduce", values="6,090 float")
BUFFERS = Collective(number=40, name="broadcast", values="96 float")


def test_the_ranks_that_wait_are_grouped_by_their_collective() -> None:
    one, many = {0: GRADIENTS}, {0: GRADIENTS, 3: GRADIENTS}
    assert waits_in_words({}, [1]) == ""
    assert waits_in_words(one, [1]) == "rank 0 has entered all_reduce 41 (6,090 float), which rank 1 has not"
    assert (
        waits_in_words(many, [1, 2]) == "ranks 0, 3 have entered all_reduce 41 (6,090 float), which ranks 1, 2 have not"
    )
    assert waits_in_words({0: GRADIENTS, 2: BUFFERS}, [1]) == (
        "rank 2 has entered broadcast 40 (96 float), rank 0 has entered all_reduce 41 (6,090 float): "
        "the ranks do not run the same collectives"
    )


def entry(number: int) -> dict[str, Any]:
    """A collective as torch's flight recorder writes it."""
    return {
        "collective_seq_id": number,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[10, 609]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": True,
        "is_p2p": False,
    }


def leave(folder: Path, rank: int, text: str) -> None:
    """What a rank wrote."""
    (folder / FOLDER).mkdir(exist_ok=True)
    dump_file(folder, attempt=0, rank=rank).write_text(text)


def test_the_last_collective_of_a_dump_is_the_one_that_a_rank_has_entered(tmp_path: Path) -> None:
    leave(tmp_path, 0, json.dumps({"entries": [entry(40), entry(41)]}))
    expected = "rank 0 has entered all_reduce 41 (6,090 float), which rank 1 has not"
    assert describe_waits(tmp_path, attempt=0, silent=[1]) == expected


def test_a_damaged_or_empty_dump_says_nothing(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"entries": [{}]}', '{"entries": []}'):
        leave(tmp_path, 0, text)
        assert describe_waits(tmp_path, attempt=0, silent=[1]) == "", text


def leave_pickle(folder: Path, rank: int, content: bytes) -> None:
    """What NCCL's watchdog wrote."""
    (folder / FOLDER).mkdir(exist_ok=True)
    file = dump_file(folder, attempt=0, rank=rank)
    file.with_name(f"{file.name}{NCCL_SUFFIX}{rank}").write_bytes(content)


def test_the_dumps_of_nccl_s_watchdog_are_read_too(tmp_path: Path) -> None:
    assert not aborted(tmp_path, attempt=0)
    leave_pickle(tmp_path, 0, pickle.dumps({"entries": [entry(40), entry(41)]}))
    leave_pickle(tmp_path, 1, pickle.dumps({"entries": [entry(40)]}))
    assert aborted(tmp_path, attempt=0)
    assert {rank: one.number for rank, one in entered(tmp_path, attempt=0).items()} == {0: 41, 1: 40}


class _Running:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code of a pickle ran",)


def test_a_dump_runs_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_pickle(tmp_path, 0, pickle.dumps({"entries": [entry(41), _Running()]}))
    assert entered(tmp_path, attempt=0) == {}
    assert capsys.readouterr().out == ""


def test_a_rank_that_nccl_s_watchdog_aborts_is_not_taken_for_the_one_that_hangs(tmp_path: Path) -> None:
    hangs = r"^rank 1 did not answer within 300 s .*\nrank 0 has entered all_reduce 41 .*rank 1 has not$"
    entered_by_all = r"^rank 0 was killed by SIGABRT.*that all ranks have entered$"
    for number, (numbers, said, cause) in enumerate(
        (
            ({0: 41, 1: 40}, hangs, Cause.HANG),
            ({0: 41}, r"^rank 1 did not answer", Cause.HANG),
            ({0: 41, 1: 41}, entered_by_all, Cause.COMMUNICATION),
        )
    ):
        run = tmp_path / str(number)
        run.mkdir()
        for rank, entered_last in numbers.items():
            leave_pickle(run, rank, pickle.dumps({"entries": [entry(entered_last)]}))
        ended, scale = WorkersFailedError("status 1", exits={0: -6}), ScaleSettings(launcher="torchrun", workers=2)
        found = failures.cause(run, attempt=0, ended=ended, scale=scale)
        assert re.match(said, found.message)
        assert found.cause is cause


def test_ranks_that_waited_in_different_collectives_are_an_error_of_the_code(tmp_path: Path) -> None:
    ended = WorkersFailedError("workers exited with status 1", exits={0: 1, 1: 1})

    def caused(second: list[dict[str, Any]]) -> failures.Failure:
        leave(tmp_path, 0, json.dumps({"entries": [entry(40), entry(41), entry(42)]}))
        leave(tmp_path, 1, json.dumps({"entries": second}))
        return failures.cause(tmp_path, attempt=0, ended=ended, scale=ScaleSettings(launcher="torchrun", workers=2))

    for rank in (0, 1):
        lost = failures.Failure.of(RuntimeError("[gloo/x.cc:78] Timed out waiting 12000ms"), rank=rank)
        (tmp_path / FOLDER).mkdir(exist_ok=True)
        failures.record(tmp_path, lost, attempt=0)
    assert caused([entry(40), entry(41)]).cause is Cause.COMMUNICATION
    part = {**entry(41), "profiling_name": "gloo:all_gather"}
    assert caused([entry(40), part]).cause is Cause.CODE
    assert caused([entry(40), {**entry(41), "input_sizes": [[3]]}]).cause is Cause.CODE
    assert caused([entry(40), {**part, "is_p2p": True}]).cause is Cause.COMMUNICATION
