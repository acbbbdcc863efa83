"""Who waits for whom, from the dumps of torch's flight recorder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.evidence import FOLDER
from training.flight_records import Collective, describe_waits, dump_file, waits_in_words

GRADIENTS = Collective(number=41, name="all_reduce", values="6,090 float")
BUFFERS = Collective(number=40, name="broadcast", values="96 float")


@pytest.mark.parametrize(
    ("waiting", "silent", "words"),
    [
        ({}, [1], ""),
        ({0: GRADIENTS}, [1], "rank 0 has entered all_reduce 41 (6,090 float), which rank 1 has not"),
        (
            {0: GRADIENTS, 3: GRADIENTS},
            [1, 2],
            "ranks 0, 3 have entered all_reduce 41 (6,090 float), which ranks 1, 2 have not",
        ),
        (
            {0: GRADIENTS, 2: BUFFERS},
            [1],
            (
                "rank 2 has entered broadcast 40 (96 float), rank 0 has entered all_reduce 41 (6,090 float): "
                "the ranks do not run the same collectives"
            ),
        ),
    ],
)
def test_the_ranks_that_wait_are_grouped_by_their_collective(
    waiting: dict[int, Collective], silent: list[int], words: str
) -> None:
    assert waits_in_words(waiting, silent) == words


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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": [{}]}', '{"entries": []}'])
def test_a_damaged_or_empty_dump_says_nothing(tmp_path: Path, text: str) -> None:
    leave(tmp_path, 0, text)
    assert describe_waits(tmp_path, attempt=0, silent=[1]) == ""
