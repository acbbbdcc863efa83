"""Which checks are made, whatever happens in one of them, and how results are shown: table, JUnit's XML, page and record."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from infra.spec.errors import NoAnswerError, RefusedError
from tests.observability.report.parsed_page import Page
from training.cluster.conformance import catalogue
from training.cluster.conformance.catalogue import CHECKS, LOSS, NODE_GPUS, SUM, TRACKING, chosen, in_order
from training.cluster.conformance.check import Finding, NotApplicableError, Result, judged, skipped
from training.cluster.conformance.results import junit, page, record, text
from training.cluster.conformance.results.summary import Summary
from training.cluster.conformance.runner import Runner
from training.errors import ExitStatus, SettingsError

STARTED = datetime(2026, 11, 24, 8, 30, tzinfo=UTC)
RESULTS = (
    Result(check=catalogue.NODE_GPUS, finding=judged(holds=True, expected="4 x GPU", found="2 nodes"), seconds=0.2),
    Result(check=catalogue.NODE_EFA, finding=skipped("no EFA here", expected="EFA"), seconds=0.0),
    Result(
        check=catalogue.EFA_USED,
        finding=judged(holds=False, expected="efa", found="rank 1 used <socket> \x1b[31m& more"),
        seconds=62.0,
    ),
)
SUMMARY = Summary(
    env="dev",
    platform="1.2.3",
    cluster="rtp-dev",
    endpoint="https://example.invalid",
    team="research",
    nodes="2 nodes of group a10g",
    job="conformance-20261124-083000",
    fakes="2 of 2 nodes are fake",
    started=STARTED,
    seconds=63.0,
    results=RESULTS,
)


def test_the_table_has_every_check_and_what_was_expected_of_those_that_failed() -> None:
    lines = text.table(SUMMARY).splitlines()
    expected = [["nodes.gpus", "passed"], ["nodes.efa", "skipped"], ["fabric.efa", "failed"]]
    assert [line.split()[:2] for line in lines[1:4]] == expected
    assert "  expected  efa" in lines
    assert lines[-1] == "conformance of dev: 1 passed, 1 failed, 1 skipped, in 1 min 03 s"
    assert "note: 2 of 2 nodes are fake" in lines
    assert (SUMMARY.status, replace(SUMMARY, results=RESULTS[:2]).status) == (ExitStatus.FAILED, ExitStatus.DONE)


def test_junits_xml_has_a_case_for_each_check() -> None:
    suite = ET.fromstring(junit.junit(SUMMARY))  # noqa: S314 - our own
    assert [suite.get(key) for key in ("tests", "failures", "skipped", "errors")] == ["3", "1", "1", "0"]
    passed, left_out, failed = suite.findall("testcase")
    assert [one.tag for one in passed] == ["system-out"]
    assert (left_out.get("classname"), left_out.get("name")) == ("conformance.nodes", "nodes.efa")
    (reason,), (failure,) = left_out, failed
    assert (reason.tag, reason.get("message")) == ("skipped", "no EFA here")
    assert failure.get("message") == "rank 1 used <socket> [31m& more"
    assert float(failed.get("time", "")) == 62.0


def test_the_page_escapes_what_it_shows_and_has_earlier_runs_newest_first(tmp_path: Path) -> None:
    for hours in (1, 2):
        record.keep(replace(SUMMARY, started=STARTED - timedelta(hours=hours), platform=f"1.2.{hours}"), tmp_path)
    (tmp_path / "notes.json").write_text('{"started": "yesterday"}')
    (tmp_path / "list.json").write_text("[]")
    without_zone = {"started": "2026-11-20T08:30:00", "platform": "1.1.9", "title": "", "checks": []}
    (tmp_path / "without-zone.json").write_text(json.dumps(without_zone))
    record.keep(SUMMARY, tmp_path)
    history = record.earlier(tmp_path, before=STARTED)
    assert [one.platform for one in history] == ["1.2.1", "1.2.2", "1.1.9"]
    assert history[0].failed == ("fabric.efa",)
    html = page.page(SUMMARY, history)
    assert html.index("2026-11-24 07:30") < html.index("2026-11-24 06:30")
    shown = Page(html)
    assert (shown.references, shown.tags["script"]) == ([], 0)
    for part in ("rank 1 used <socket>", "2 of 2 nodes are fake"):
        assert part in shown.text


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
