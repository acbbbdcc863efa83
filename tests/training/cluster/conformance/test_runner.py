"""Which checks are made, and that they are made one after the other, whatever happens in one of them."""

from __future__ import annotations

from functools import partial

import pytest

from infra.spec.errors import NoAnswerError, RefusedError
from training.cluster.conformance.catalogue import CHECKS, LOSS, NODE_GPUS, SUM, TRACKING, chosen, in_order
from training.cluster.conformance.check import Finding, NotApplicableError, judged
from training.cluster.conformance.runner import Runner
from training.errors import SettingsError


def _right() -> Finding:
    return judged(holds=True, expected="4", found="4")


def _raises(error: Exception) -> Finding:
    raise error


def test_a_check_that_cannot_be_made_does_not_end_the_others() -> None:
    for error, verdict, found in (
        (RefusedError("no such pod"), "failed", "not known: no such pod"),
        (NoAnswerError("silence"), "failed", "not known: silence"),
        (KeyError("groups"), "failed", "not known: KeyError: 'groups'"),
        (NotApplicableError("no GPU"), "skipped", "no GPU"),
    ):
        runner = Runner((NODE_GPUS, SUM), lambda _: None)
        runner.make(NODE_GPUS, partial(_raises, error))
        runner.make(SUM, _right)
        first, second = (one.finding for one in runner.results)
        assert (first.verdict, first.found, first.expected) == (verdict, found, NODE_GPUS.title)
        assert second.verdict == "passed"


def test_where_nothing_may_be_skipped_a_skipped_check_has_failed() -> None:
    runner = Runner((SUM,), lambda _: None, allows_skips=False)
    runner.make(SUM, partial(_raises, NotApplicableError("no GPU")))
    assert [(one.finding.verdict, one.finding.found) for one in runner.results] == [("failed", "skipped: no GPU")]


def test_only_chosen_checks_are_made_and_results_are_shown_in_the_order_of_the_catalogue() -> None:
    runner = Runner((SUM, NODE_GPUS, TRACKING), lambda _: None)
    for check in (TRACKING, LOSS, NODE_GPUS, SUM):
        runner.make(check, _right)
    assert [one.check for one in in_order(runner.results)] == [NODE_GPUS, SUM, TRACKING]


def test_checks_are_chosen_by_name_and_by_group_in_their_order() -> None:
    assert chosen(()) == CHECKS
    names = ["nodes.gpus", "nodes.efa", "nodes.driver", "training.resume"]
    assert [one.name for one in chosen(("training.resume", "nodes"))] == names
    for name, meant in (("node.gpus", "did you mean nodes.gpus?"), ("policies", "did you mean policy?")):
        with pytest.raises(SettingsError) as refused:
            chosen((name,))
        assert meant in str(refused.value)
