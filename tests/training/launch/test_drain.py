"""When ranks leave a node that is being drained: a pure function of the notice."""

from __future__ import annotations

import math

import pytest

from training.launch.drain import DrainNotice, leaves_at

NOW = 1000.0


def notice(*, deadline: float = NOW + 120, has_replacements: bool) -> DrainNotice:
    return DrainNotice(ranks=(1,), deadline=deadline, has_replacements=has_replacements)


@pytest.mark.parametrize("seconds", [20, 120, 3600])
def test_ranks_whose_replacements_are_ready_leave_at_once_however_long_the_notice_is(seconds: float) -> None:
    assert leaves_at(notice(deadline=NOW + seconds, has_replacements=True), now=NOW, save_seconds=10) == NOW


def test_without_replacements_they_train_until_three_checkpoints_and_a_reserve_before_the_end() -> None:
    assert leaves_at(notice(has_replacements=False), now=NOW, save_seconds=10) == NOW + 120 - 30 - 5


def test_a_notice_that_is_shorter_than_that_is_obeyed_at_once() -> None:
    assert leaves_at(notice(deadline=NOW + 20, has_replacements=False), now=NOW, save_seconds=10) == NOW


def test_a_notice_without_a_deadline_may_end_at_any_time() -> None:
    assert leaves_at(notice(deadline=math.inf, has_replacements=False), now=NOW, save_seconds=1) == NOW


def test_a_notice_in_words_names_the_ranks_and_the_time_that_is_left() -> None:
    assert notice(has_replacements=True).describe(NOW) == "the node of rank 1 is being drained and goes in 120 s"
    two = DrainNotice(ranks=(2, 3), deadline=math.inf, has_replacements=True)
    assert two.describe(NOW) == "the nodes of ranks 2, 3 are being drained"
