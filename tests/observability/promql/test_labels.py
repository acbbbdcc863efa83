"""The labels of a result follow the rules of PromQL."""

from __future__ import annotations

import promql_parser as promql

from observability.promql.labels import LabelReader

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
