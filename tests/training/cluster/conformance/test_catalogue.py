"""The list of checks."""

from __future__ import annotations

import pytest

from training.cluster.conformance.catalogue import CHECKS, chosen
from training.errors import SettingsError


def test_checks_are_chosen_by_name_and_by_group_in_their_order() -> None:
    assert chosen(()) == CHECKS
    names = ["nodes.gpus", "nodes.efa", "nodes.driver", "training.resume"]
    assert [one.name for one in chosen(("training.resume", "nodes"))] == names
    for name, meant in (("node.gpus", "did you mean nodes.gpus?"), ("policies", "did you mean policy?")):
        with pytest.raises(SettingsError) as refused:
            chosen((name,))
        assert meant in str(refused.value)
