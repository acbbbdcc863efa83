"""The place of a rank, from torchrun's environment variables."""

from __future__ import annotations

import pytest

from training.launch.task import RankPlace


def test_a_rank_reads_torchruns_environment_variables_and_is_alone_without_them() -> None:
    given = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    place = RankPlace.from_environment({**given, "MASTER_ADDR": "head", "MASTER_PORT": "29400"})
    assert place == RankPlace(rank=5, world=8, local_rank=1, local_world=4, master_address="head", master_port=29400)
    alone = RankPlace(rank=0, world=1, local_rank=0, local_world=1, master_address="127.0.0.1", master_port=0)
    assert RankPlace.from_environment({}) == alone
    with pytest.raises(ValueError, match="first"):
        RankPlace.from_environment({"RANK": "first"})
