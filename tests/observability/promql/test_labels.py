"""The labels of a result follow the rules of PromQL."""

from __future__ import annotations

import json
from pathlib import Path

import promql_parser as promql

from observability.promql.labels import EXPERIMENTAL, LabelReader
from tests.engines.promtool import promtool

SERIES = {"left": frozenset("ab"), "right": frozenset("ac"), "counter": frozenset(["a", "le"])}


def test_the_labels_of_a_result() -> None:
    errors: list[str] = []
    reader = LabelReader(SERIES, counters=frozenset(["counter"]), complain=errors.append)
    for expression, labels in {
        "left": "a b",
        "sum(left)": "",
        "topk(3, left)": "a b",
        "sum by (a) (left)": "a",
        "sum without (a) (left)": "b",
        "sum by (a) (left) > 1": "a",
        "time() - sum by (a) (left)": "a",
        "left * on (a) right": "a",
        "left * ignoring (b, c) right": "a",
        "left * on (a) group_left (c) right": "a b c",
        "left and on (a) right": "a b",
        "left unless on (a) right": "a b",
        "rate(counter[5m])": "a le",
        "histogram_quantile(0.5, sum by (le) (rate(counter[5m])))": "",
        'label_replace(left, "d", "$1", "a", "(.*)")': "a b d",
        "absent(left)": "",
        "max_over_time(sum by (a) (left)[1h:1m])": "a",
        "-left": "a b",
    }.items():
        assert reader.labels_of(promql.parse(expression)) == frozenset(labels.split()), expression
    assert errors == []


def test_what_prometheus_refuses_without_a_flag_is_refused(tmp_path: Path) -> None:
    """And nothing else is: promtool, which has Prometheus' own parser, says so of every function and of `fill`."""
    arguments = {
        "end": "",
        "info": "up",
        "limit_ratio": "0.1, up",
        "limitk": "2, up",
        "max_of": "1, 2",
        "min_of": "1, 2",
    }
    arguments |= {"histogram_quantiles": 'up, "q", 0.5', "range": "", "start": "", "step": "", "start_timestamp": "up"}
    arguments |= dict.fromkeys(("sort_by_label", "sort_by_label_desc"), 'up, "a"')
    arguments |= {"double_exponential_smoothing": "up[5m], 0.5, 0.5"}
    called = [f"{name}({arguments.get(name, 'up[5m]')})" for name in sorted(EXPERIMENTAL)]
    stable = ["last_over_time(up[5m])", "topk(2, up)", "sort(up)", "up + on (a) up", "timestamp(up)"]
    for expression in (*called, "up + fill(0) up", *stable):
        errors: list[str] = []
        LabelReader({"up": frozenset("a")}, counters=frozenset(), complain=errors.append).labels_of(
            promql.parse(expression)
        )
        rule = {"groups": [{"name": "g", "rules": [{"record": "r", "expr": expression}]}]}
        (tmp_path / "rules.yaml").write_text(json.dumps(rule), encoding="utf-8")
        refusal = promtool("check", "rules", "rules.yaml", folder=tmp_path)
        assert bool(errors) == bool(refusal) == (expression not in stable), (expression, errors, refusal)
