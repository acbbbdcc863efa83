"""The decision after a failure: restart after a transient one, up to the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.errors import NonFiniteLossError
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
