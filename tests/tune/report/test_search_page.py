"""The report of a search: a self-contained page with its facts, trials and the plots that apply, read from their SVG."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from observability.report.drawing import Plot
from tests.observability.report.parsed_page import Page, assert_is_self_contained
from tests.tune.report.test_data import data_of
from tests.tune.sample_search import CODE, NAME, PBT, PBT_SPACE, SPACE, SampleSearch
from tests.tune.test_table import LONG_SPACE
from tune.events import SearchEnded, SearchLogWriter, SearchNotice, TrialAdded
from tune.report import write_report
from tune.report.outcome_plots import best_so_far, cost, learning_curves, pareto
from tune.report.scales import Names, Numbers, scale_of
from tune.report.schedule_plots import lineage, schedules, survival
from tune.report.space_plots import parallel_coordinates
from tune.space.axes import Choice, Continuous, Integers

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


def test_the_page_says_that_best_yaml_is_still_to_come_and_is_replaced_once_it_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a search: it contains no search\.jsonl"):
        write_report(tmp_path)
    search = SampleSearch(trials=4, epochs=3, until=6)
    assert "once the search has written best.yaml" in page_of(tmp_path, search, is_running=True).text
    (tmp_path / "best.yaml").touch()
    report = write_report(tmp_path)
    assert "once the search" not in Page(report.read_text(encoding="utf-8")).text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.yaml", "report.html", "search.jsonl", "trials"]


def test_a_search_without_an_end_runs_or_was_killed(tmp_path: Path) -> None:
    search = SampleSearch(trials=2, until=5)
    for is_running, status, trial in ((True, "running", "running"), (False, "killed", "interrupted")):
        page = page_of(tmp_path / status, search, is_running=is_running)
        assert f'<span class="status {status}">{status}</span>' in page.html
        assert f'<td class="{trial}">{trial}</td>' in page.html
    search.events.append(SearchEnded(status="failed", reason="3 trials failed, and stop.failures=3"))
    failed = page_of(tmp_path / "failed", search).text.replace("\n", "")
    assert "Why the search ended3 trials failed" in failed, "at the top"


def test_text_of_the_search_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    SampleSearch(trials=4, epochs=3, failing={"t002": hostile}).write(tmp_path)
    writer = SearchLogWriter(tmp_path)
    writer.write(TrialAdded(trial="t009", values={"model.name": hostile}), SearchNotice(level="error", message=hostile))
    writer.close()
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.text.count(hostile) >= 3
    assert page.tags["script"] == 0


def labels(plot: Plot | None) -> list[str]:
    """The texts of a plot."""
    assert plot is not None
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)


def marks(plot: Plot | None, variable: str) -> int:
    """Marks of a colour, those of the legend included."""
    assert plot is not None
    return len(re.findall(rf'<use [^>]*style="(?:fill|stroke): var\({variable}\)', plot.svg))


def lines(plot: Plot | None, variable: str) -> int:
    """Lines of a colour that are not part of a mark."""
    assert plot is not None
    without_marks = re.sub(r"<defs>.*?</defs>", "", plot.svg, flags=re.DOTALL)
    return len(re.findall(rf'<path [^>]*style="fill: none; stroke: var\({variable}\)', without_marks))


def test_every_trial_is_marked_by_its_status_in_both_panels() -> None:
    search = SampleSearch(trials=16, failing={"t004": "killed"})
    found = [trial.status for trial in search.history.trials.values()]
    plot = best_so_far(data_of(search))
    # Twice in the panels and once in the legend.
    assert marks(plot, "--train") == 2 * found.count("done") + 1
    assert marks(plot, "--muted") == 2 * found.count("stopped") + 1
    assert marks(plot, "--bad") == 2 + 1
    assert {f"done ({found.count('done')})", "failed (1)"} <= set(labels(plot))
    early = best_so_far(data_of(SampleSearch(trials=8, until=5)))
    assert early is not None
    assert "Crosses at the bottom" in early.note, "those without a result"


def test_every_trial_has_a_curve_and_the_best_is_named() -> None:
    search = SampleSearch(trials=12, epochs=9, scheduler=FULL)
    plot = learning_curves(data_of(search))
    assert lines(plot, "--train") == 12
    assert f"best: {search.history.ranked()[0].id}" in labels(plot)


def test_every_ranked_trial_is_a_line_through_every_axis_that_varies() -> None:
    search = SampleSearch(trials=16, failing={"t004": "killed"})
    plot = parallel_coordinates(data_of(search))
    assert lines(plot, "--train") == len(search.history.ranked()) - 1
    assert {"learning_rate", "optimizer.name", "adamw", "sgd", "absent"} <= set(labels(plot))
    assert {"0.0001", "0.001", "0.01", "0.1"} <= set(labels(plot)), "the learning rate's ticks are decades"
    space = {key: axis for key, axis in SPACE.items() if key != "optimizer.momentum"} | {"schedule.name": "cosine"}
    assert not {"absent", "schedule.name"} & set(labels(parallel_coordinates(data_of(SampleSearch(space=space)))))


def test_many_axes_take_several_rows_which_all_end_with_the_result() -> None:
    plot = parallel_coordinates(data_of(SampleSearch(trials=16, space=LONG_SPACE)))
    assert labels(plot).count("validation") == labels(plot).count("accuracy") == 2
    [width, height] = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', plot.svg if plot else "")[0]
    assert float(height) > 0.4 * float(width)


def test_the_front_the_survivors_of_the_rungs_and_the_unit_of_the_cost_are_named() -> None:
    objectives = {"validation_accuracy": "max", "parameters": "min"}
    data = data_of(SampleSearch(trials=20, epochs=5, scheduler=FULL, objectives=objectives))
    assert {data.front()[0].id, "validation accuracy (max)", "parameters (min)"} <= set(labels(pareto(data)))
    data = data_of(SampleSearch(trials=16))
    reached = data.survival()
    assert {str(reached[epoch - 1]) for epoch in (1, 3, 9)} <= set(labels(survival(data)))
    assert "worker-seconds" in labels(cost(data))
    assert "dollars" in labels(cost(data_of(SampleSearch(trials=4, stop={"dollars_per_worker_hour": 2.0}))))


def test_a_population_has_an_arrow_per_exploitation_and_a_schedule_of_each_perturbed_setting() -> None:
    data = data_of(SampleSearch(trials=8, epochs=12, scheduler=PBT, space=PBT_SPACE))
    plot = lineage(data)
    assert plot is not None
    assert plot.note.startswith(f"{len(data.copies())} exploitations.")
    assert {trial.id for trial in data.trials} <= set(labels(plot))
    assert "learning_rate, logarithmic" in labels(schedules(data))
    assert lines(schedules(data), "--validation") == len(data.perturbed())
    large = data_of(SampleSearch(trials=100, epochs=6, scheduler=PBT, space=PBT_SPACE))
    assert 20 <= sum(re.fullmatch(r"t\d+", label) is not None for label in labels(lineage(large))) <= 40


def test_a_scale_has_equal_distances_between_decades_or_numbers() -> None:
    scale = scale_of(Continuous(1e-4, 1e-1, is_log=True))
    assert [scale.place(value) for value in (1e-4, 1e-3, 1e-2, 1e-1)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [label for _, label in scale.ticks()] == ["0.0001", "0.001", "0.01", "0.1"]
    linear = scale_of(Integers(8, 64, step=8))
    assert linear.place(36) == pytest.approx(0.5)
    assert all(0 <= place <= 1 for place, _ in linear.ticks())
    assert linear.place(math.nan) is None
    assert [Numbers.around(values).place(values[0]) for values in ([0.5, 0.5], [0.0])] == pytest.approx([0.5, 0.5])


def test_names_have_their_own_places() -> None:
    scale = scale_of(Choice((True, 1, None, "sgd")))
    assert [scale.place(value) for value in (True, 1, None, "sgd")] == [0.125, 0.375, 0.625, 0.875]
    assert scale.place("adamw") is None
    assert [label for _, label in scale.ticks()] == ["true", "1", "none", "sgd"]
    assert 6 <= len(Names(values=[f"choice {index}" for index in range(40)]).ticks()) <= 12, "some of many"
