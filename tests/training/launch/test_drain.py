"""When ranks leave a node that is being drained: a pure function of the notice."""

from __future__ import annotations

import math

from training.launch.drain import DrainNotice, leaves_at

NOW = 1000.0


def notice(*, deadline: float = NOW + 120, has_replacements: bool) -> DrainNotice:
    return DrainNotice(ranks=(1,), deadline=deadline, has_replacements=has_replacements)


def test_ranks_leave_at_once_or_three_checkpoints_and_a_reserve_before_the_end_if_nothing_replaces_them() -> None:
    for seconds in (20, 120, 3600):
        ready = notice(deadline=NOW + seconds, has_replacements=True)
        assert leaves_at(ready, now=NOW, save_seconds=10) == NOW, seconds
    assert leaves_at(notice(has_replacements=False), now=NOW, save_seconds=10) == NOW + 120 - 30 - 5
    too_short = notice(deadline=NOW + 20, has_replacements=False)
    at_any_time = notice(deadline=math.inf, has_replacements=False)
    for urgent in (too_short, at_any_time):
        assert leaves_at(urgent, now=NOW, save_seconds=10) == NOW


def test_a_notice_in_words_names_the_ranks_and_the_time_that_is_left() -> None:
    assert notice(has_replacements=True).describe(NOW) == "the node of rank 1 is being drained and goes in 120 s"
    two = DrainNotice(ranks=(2, 3), deadline=math.inf, has_replacements=True)
    assert two.describe(NOW) == "the nodes of ranks 2, 3 are being drained"
