"""The decision after a failure: restart after a transient one, up to the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import NonFiniteLossError
from training.evidence import Evidence
from training.failures import Failure
from training.restart import Decision, RestartPolicy

DEATH = Failure.sudden("rank 1 was killed by SIGKILL")
DEFECT = Failure.of(NonFiniteLossError("step 3"), rank=0)


@given(allowed=st.integers(0, 5), used=st.integers(0, 5))
def test_a_dead_rank_is_restarted_up_to_the_limit(allowed: int, used: int) -> None:
    decision = RestartPolicy(max_restarts=allowed).decide(DEATH, restarts=used)
    assert (decision is Decision.RESTART) == (used < allowed)


@given(allowed=st.integers(0, 5))
def test_a_permanent_failure_is_never_retried(allowed: int) -> None:
    assert RestartPolicy(max_restarts=allowed).decide(DEFECT, restarts=0) is Decision.FAIL


def death(kind: str = "SIGKILL", *, step: int | None = None, place: str = "") -> Failure:
    return Failure.sudden(f"rank 1 was killed by {kind}", kind=kind, found=Evidence(step=step, place=place))


@pytest.mark.parametrize(
    ("earlier", "failure", "is_restarted"),
    [
        (death(step=13), death(step=13), False),
        (death(step=13), death(step=14), True),
        (death(), death(), True),  # while the ranks start, the step is unknown
        (death("SIGSEGV", step=13), death("SIGKILL", step=13), True),
        (death("SIGSEGV", step=13, place="m.py:1 in f"), death("SIGSEGV", step=23, place="m.py:1 in f"), False),
        (death("SIGSEGV", step=13, place="m.py:1 in f"), death("SIGSEGV", step=23, place="m.py:2 in f"), True),
        (
            death("RankNotAnswering", step=3, place="m.py:1 in f"),
            death("RankNotAnswering", step=4, place="m.py:1 in f"),
            True,
        ),
        (None, death(step=13), True),
    ],
)
def test_a_death_that_repeats_is_not_restarted_again(
    earlier: Failure | None, failure: Failure, *, is_restarted: bool
) -> None:
    decision = RestartPolicy(max_restarts=5).decide(failure, restarts=1, earlier=earlier)
    assert (decision is Decision.RESTART) == is_restarted
