"""The report of a search: a self-contained page with its facts, trials and the plots that apply."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.observability.report.parsed_page import Page, assert_is_self_contained
from tests.tune.sample_search import CODE, NAME, PBT, PBT_SPACE, SampleSearch
from tests.tune.test_table import LONG_SPACE
from tune.events import SearchEnded, SearchLogWriter, SearchNotice, TrialAdded
from tune.report import write_report

FULL = {"name": "none"}
TRACE = "worker 1 ran out of memory\n  File 'forward.py', line 12"
PLOTS = ["best", "pareto", "curves", "parallel", "lineage", "schedules", "importance", "survival", "cost"]
SEARCHES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "one": ({"trials": 1}, {"curves"}),
    "three": ({"trials": 3, "scheduler": FULL}, {"best", "curves", "parallel", "cost"}),
    "asha": (
        {"trials": 16, "failing": {"t004": TRACE}},
        {"best", "curves", "parallel", "importance", "survival", "cost"},
    ),
    "long": ({"trials": 24, "space": LONG_SPACE}, {"best", "curves", "parallel", "importance", "survival", "cost"}),
    "pbt": (
        {"trials": 8, "epochs": 12, "scheduler": PBT, "space": PBT_SPACE},
        {"best", "curves", "parallel", "lineage", "schedules", "cost"},
    ),
    "pareto": (
        {
            "trials": 12,
            "epochs": 4,
            "scheduler": FULL,
            "objectives": {"validation_accuracy": "max", "parameters": "min"},
        },
        {"pareto", "curves", "parallel", "importance", "cost"},
    ),
    "large": ({"trials": 200, "epochs": 9}, {"best", "curves", "parallel", "importance", "survival", "cost"}),
    "seconds": (
        {"trials": 4, "epochs": 3, "scheduler": FULL, "objectives": {"seconds": "min"}},
        {"best", "curves", "parallel", "cost"},
    ),
    "nothing yet": ({"trials": 4, "until": 0}, set()),
}


def page_of(folder: Path, search: SampleSearch, *, is_running: bool = False) -> Page:
    """The report of a search."""
    return Page(write_report(search.write(folder), is_running=is_running).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SEARCHES)
def test_the_page_is_self_contained_and_has_the_plots_that_apply(name: str, tmp_path: Path) -> None:
    settings, plots = SEARCHES[name]
    page = page_of(tmp_path, SampleSearch(**settings))
    assert [key for key in page.ids if key in PLOTS] == [key for key in PLOTS if key in plots]
    tags = [ET.fromstring(drawing).tag for drawing in page.drawings]  # noqa: S314 - our own output
    assert tags == ["{http://www.w3.org/2000/svg}svg"] * len(plots)
    assert_is_self_contained(page)
    texts = re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", page.html, flags=re.DOTALL)
    assert not re.search(r"\bnan\b|\bNone\b|\{\w", texts), "a value is missing"


def test_the_page_has_the_facts_of_the_search_its_trials_and_its_cost(tmp_path: Path) -> None:
    """Of a search with code, a price and a failure."""
    search = SampleSearch(
        trials=16, failing={"t004": TRACE}, code=True, stop={"dollars_per_worker_hour": 36.0, "target": 0.999}
    )
    text = page_of(tmp_path, search).text
    facts = [
        NAME,
        "asha (grace_epochs 1, reduction_factor 3, brackets 1)",
        "node-1",
        "ada",
        CODE["sha256"],
        "stop: target",
        "0.0001 to 0.1, logarithmic",
        "0 to 0.1, in steps of 0.01",
        "0.5 to 0.99; if optimizer.name is sgd",
        "worker 1 ran out of memory",
        "File 'forward.py', line 12",
        "not among the best 1/3 after epoch 1",
        "loop.global_batch",
        "16 of 16 trials ended",
        f"${search.history.worker_seconds / 100:,.2f}",
    ]
    assert [fact for fact in facts if fact not in text] == []
    assert re.search(r"\d\d\.\d %", text), "metrics are written as the trials describe them"


def test_the_page_says_that_best_yaml_is_still_to_come(tmp_path: Path) -> None:
    search = SampleSearch(trials=4, epochs=3, until=6)
    assert "once the search has written best.yaml" in page_of(tmp_path, search, is_running=True).text
    (tmp_path / "best.yaml").touch()
    assert "once the search" not in Page(write_report(tmp_path).read_text(encoding="utf-8")).text


def test_a_search_without_an_end_runs_or_was_killed(tmp_path: Path) -> None:
    search = SampleSearch(trials=2, until=5)
    for is_running, status, trial in ((True, "running", "running"), (False, "killed", "interrupted")):
        page = page_of(tmp_path / status, search, is_running=is_running)
        assert f'<span class="status {status}">{status}</span>' in page.html
        assert f'<td class="{trial}">{trial}</td>' in page.html


def test_why_a_search_failed_is_at_the_top(tmp_path: Path) -> None:
    search = SampleSearch(trials=4, until=3)
    search.events.append(SearchEnded(status="failed", reason="3 trials failed, and stop.failures=3"))
    assert "Why the search ended3 trials failed" in page_of(tmp_path, search).text.replace("\n", "")


def test_text_of_the_search_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    SampleSearch(trials=4, epochs=3, failing={"t002": hostile}).write(tmp_path)
    writer = SearchLogWriter(tmp_path)
    writer.write(TrialAdded(trial="t009", values={"model.name": hostile}), SearchNotice(level="error", message=hostile))
    writer.close()
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.text.count(hostile) >= 3
    assert page.tags["script"] == 0


def test_the_report_replaces_the_older_one(tmp_path: Path) -> None:
    search = SampleSearch(trials=2, epochs=2)
    assert write_report(search.write(tmp_path)) == write_report(tmp_path) == tmp_path / "report.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "search.jsonl", "trials"]


def test_a_folder_without_a_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a search: it contains no search\.jsonl"):
        write_report(tmp_path)
