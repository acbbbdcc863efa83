"""How a command on several nodes ends."""

from __future__ import annotations

from training.errors import ExitStatus
from training.script.ending import GRACE_SECONDS, Action, Ending


def _ending(nodes: int = 3) -> Ending:
    return Ending(text="torchrun train.py", hosts=[f"pod-{rank}" for rank in range(nodes)])


def test_a_command_that_succeeds_on_every_node_succeeds() -> None:
    ending = _ending()
    for rank, running in ((1, {0, 2}), (0, {2}), (2, set())):
        assert ending.ended(rank, 0, now=0) is None
        assert ending.running == running, "the others run on"
    assert ending.status == ExitStatus.DONE


def test_the_first_failure_ends_the_other_nodes_and_is_the_jobs() -> None:
    ending = _ending()
    assert ending.ended(1, 3, now=10) is Action.TERMINATE
    assert ending.overdue(now=10 + GRACE_SECONDS - 1) is None
    assert ending.ended(0, 143, now=11) is None
    assert ending.overdue(now=10 + GRACE_SECONDS) is Action.KILL
    assert ending.overdue(now=10 + GRACE_SECONDS + 1) is None
    assert ending.ended(2, 137, now=50) is None
    assert ending.status == 3
    assert ending.failure is not None
    assert ending.failure.message == "node 1 (pod-1): 'torchrun train.py' exited with status 3"


def test_a_lost_node_is_named_and_ends_the_others() -> None:
    ending = _ending()
    assert ending.lost(2, "its node has died", now=0) is Action.TERMINATE
    assert ending.status == ExitStatus.FAILED
    assert ending.failure is not None
    assert "node 2 (pod-2) was lost" in ending.failure.message
    assert "its node has died" in ending.failure.message


def test_a_node_that_is_drained_lets_all_save_and_fails_the_job() -> None:
    ending = _ending(2)
    assert ending.drained([]) is None
    assert ending.drained([1]) is Action.TERMINATE
    assert ending.drained([1]) is None
    assert ending.overdue(now=1e9) is None, "the nodes' own grace period is the limit"
    assert ending.ended(0, 143, now=5) is None
    assert ending.overdue(now=1e9) is None, "node 1 may still save"
    assert ending.ended(1, 0, now=6) is None
    assert ending.status == ExitStatus.FAILED
    assert ending.failure is not None
    assert "node 1 (pod-1) is being drained" in ending.failure.message


def test_a_drained_node_that_is_gone_leaves_the_others_their_grace_period() -> None:
    ending = _ending(2)
    ending.drained([1])
    assert ending.lost(1, "gone", now=90) is None
    assert ending.overdue(now=90 + GRACE_SECONDS) is Action.KILL


def test_a_drain_during_a_stop_is_part_of_it() -> None:
    ending = _ending(2)
    ending.asked_to_stop()
    assert ending.drained([0, 1]) is None
    assert ending.status == ExitStatus.INTERRUPTED


def test_a_request_to_stop_gives_the_command_its_time_and_a_second_one_does_not() -> None:
    ending = _ending(2)
    assert ending.asked_to_stop() is Action.TERMINATE
    assert ending.overdue(now=1e9) is None
    assert ending.ended(0, 0, now=1) is None
    assert ending.asked_to_stop() is Action.KILL
    assert ending.ended(1, 137, now=2) is None
    assert (ending.failure, ending.status) == (None, ExitStatus.INTERRUPTED)


def test_a_failure_before_the_request_to_stop_stays_the_jobs() -> None:
    ending = _ending(2)
    ending.ended(0, 7, now=0)
    assert ending.asked_to_stop() is None, "it has SIGTERM already"
    ending.ended(1, 143, now=1)
    assert ending.status == 7


def test_a_failure_says_what_its_exit_status_means() -> None:
    for status, said, remedy in (
        (127, "exited with status 127", "did not find the program"),
        (126, "exited with status 126", "not executable"),
        (137, "was ended by signal 9 (exit status 137)", "no memory left"),
        (139, "was ended by signal 11 (exit status 139)", ""),
    ):
        ending = _ending(1)
        assert ending.ended(0, status, now=0) is None
        assert ending.failure is not None
        assert ending.failure.message == f"pod-0: 'torchrun train.py' {said}"
        assert remedy in ending.failure.remedy
        assert bool(remedy) == bool(ending.failure.remedy)
