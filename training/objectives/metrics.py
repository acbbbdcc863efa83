"""The metrics of the built-in objectives. Imports no torch, because the command line reads their names."""

from __future__ import annotations

from observability.objective_metrics import Metric

CLASSIFICATION = (
    Metric(name="loss", label="cross-entropy (nats)"),
    Metric(name="accuracy", is_ratio=True, higher_is_better=True),
)

LANGUAGE_MODELLING = (
    Metric(name="loss", label="cross-entropy per token (nats)"),
    Metric(name="perplexity"),
    Metric(name="accuracy", is_ratio=True, higher_is_better=True),
)

REGRESSION = (
    Metric(name="loss"),
    Metric(name="mean_absolute_error"),
    Metric(name="root_mean_squared_error"),
)

MULTI_LABEL = (
    Metric(name="loss", label="binary cross-entropy (nats)"),
    Metric(name="f1", label="F1, over all labels", is_ratio=True, higher_is_better=True),
    Metric(name="precision", is_ratio=True, higher_is_better=True),
    Metric(name="recall", is_ratio=True, higher_is_better=True),
)
