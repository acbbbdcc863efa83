"""The labels of an expression's result, and the rules of PromQL that decide them.

Follows Prometheus's documentation of operators and functions, for the forms that our rules and dashboards use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import promql_parser as promql

Labels = frozenset[str]
Complain = Callable[[str], None]
"""Takes what is wrong with an expression."""

_NONE: Labels = frozenset()
_SET_OPERATORS = ("and", "or", "unless")
_KEEP_LABELS = {"topk", "bottomk"}
_COUNTERS_ONLY = {"rate", "irate", "increase"}
EXPERIMENTAL = frozenset(
    {
        *("double_exponential_smoothing", "end", "histogram_quantiles", "info", "limit_ratio", "limitk", "mad_over_time", "max_of"),
        *("min_of", "range", "sort_by_label", "sort_by_label_desc", "start", "start_timestamp", "step", "ts_of_first_over_time"),
        *("ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time"),
    }
)  # fmt: skip
"""Functions and aggregations that Prometheus 3.14 refuses without a feature flag, which the stack does not set: it would load no rule of
their file (promql/parser/functions.go, lex.go). promql-parser 0.12 takes them."""

_GAUGES_ONLY = {"delta", "idelta", "deriv", "predict_linear"}


class LabelReader:
    """Finds the labels of an expression's result, and complains of names that nothing exports.

    Args:
        series: labels of each series that a query can select, by name.
        counters: those of them that are counters, or parts of histograms.
        complain: called with each error.
    """

    def __init__(self, series: Mapping[str, Labels], *, counters: frozenset[str], complain: Complain) -> None:
        self._series = series
        self._counters = counters
        self._complain = complain

    def labels_of(self, node: promql.Expr) -> Labels:
        """The labels of the result; empty for a scalar."""
        labels = _NONE
        match node:
            case promql.VectorSelector():
                labels = self._selected(node)
            case promql.MatrixSelector():
                labels = self._selected(node.vector_selector)
            case promql.AggregateExpr():
                labels = self._aggregated(node)
            case promql.BinaryExpr():
                labels = self._combined(node)
            case promql.Call():
                labels = self._called(node)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                labels = self.labels_of(node.expr)
        return labels

    def _selected(self, selector: promql.VectorSelector) -> Labels:
        name = selector.name
        if name is None:
            self._complain("a selector without a metric's name; its labels cannot be checked")
            return _NONE
        if name not in self._series:
            self._complain(f"unknown metric '{name}'")
            return _NONE
        labels = self._series[name]
        self._require((one.name for one in selector.matchers.matchers), labels, f"{name} has")
        return labels

    def _aggregated(self, node: promql.AggregateExpr) -> Labels:
        self._refuse_experimental(str(node.op))
        inner = self.labels_of(node.expr)
        if node.modifier is None:
            return inner if str(node.op) in _KEEP_LABELS else _NONE
        named = frozenset(node.modifier.labels)
        self._require(named, inner, "the aggregated series have")
        return inner - named if node.modifier.type == promql.AggModifierType.Without else named & inner

    def _combined(self, node: promql.BinaryExpr) -> Labels:
        left, right = self.labels_of(node.lhs), self.labels_of(node.rhs)
        modifier = node.modifier
        if modifier is not None and (modifier.fill_values.lhs, modifier.fill_values.rhs) != (None, None):
            self._complain("fill() is experimental: Prometheus refuses it without a feature flag")
        matching = None if modifier is None else modifier.matching
        named: Labels = _NONE
        if matching is not None:
            named = frozenset(matching.labels)
            is_on = matching.type == promql.LabelModifierType.Include
            self._require(named, left if is_on else left | right, "the left side has" if is_on else "the sides have")
            self._require(named, right if is_on else left | right, "the right side has" if is_on else "the sides have")
        if str(node.op) in _SET_OPERATORS:
            return left | right if str(node.op) == "or" else left
        if _is_scalar(node.lhs) or _is_scalar(node.rhs):
            return left | right
        if modifier is not None and modifier.card == promql.VectorMatchCardinality.ManyToOne:
            brought = frozenset(modifier.group_labels or ())
            self._require(brought, right, "the right side has")
            return left | brought
        if matching is not None and matching.type == promql.LabelModifierType.Include:
            return named
        if matching is None and left != right:
            self._complain(f"the sides match by labels that differ: {_listed(left)}; {_listed(right)}")
        return (left & right) - named

    def _called(self, node: promql.Call) -> Labels:
        name, arguments = node.func.name, list(node.args)
        self._refuse_experimental(name)
        self._check_kind(name, arguments)
        inner = [self.labels_of(one) for one in arguments]
        if name.startswith("absent"):
            return _NONE
        labels: Labels = frozenset().union(*inner)
        if name == "label_replace":
            target, source = arguments[1], arguments[3]
            assert isinstance(target, promql.StringLiteral)
            assert isinstance(source, promql.StringLiteral)
            self._require({source.val}, labels, "the replaced series have")
            return labels | {target.val}
        if name == "histogram_quantile":
            self._require({"le"}, labels, "the buckets have")
            return labels - {"le"}
        return labels

    def _refuse_experimental(self, name: str) -> None:
        if name in EXPERIMENTAL:
            self._complain(f"{name}() is experimental: Prometheus refuses it without a feature flag")

    def _check_kind(self, function: str, arguments: list[promql.Expr]) -> None:
        for argument in arguments:
            if not isinstance(argument, promql.MatrixSelector) or argument.vector_selector.name is None:
                continue
            name = argument.vector_selector.name
            if name in self._series and function in _COUNTERS_ONLY and name not in self._counters:
                self._complain(f"{function}() of {name}, which is a gauge")
            if function in _GAUGES_ONLY and name in self._counters:
                self._complain(f"{function}() of {name}, which is a counter")

    def _require(self, named: Iterable[str], labels: Labels, whose: str) -> None:
        for name in named:
            if name not in labels:
                self._complain(f"unknown label '{name}': {whose} {_listed(labels) or 'none'}")


def _is_scalar(node: promql.Expr) -> bool:
    while isinstance(node, promql.ParenExpr | promql.UnaryExpr):
        node = node.expr
    if isinstance(node, promql.NumberLiteral):
        return True
    if isinstance(node, promql.BinaryExpr):
        return _is_scalar(node.lhs) and _is_scalar(node.rhs)
    return isinstance(node, promql.Call) and node.func.name in {"time", "scalar", "pi"}


def _listed(labels: Labels) -> str:
    return ", ".join(sorted(labels))
