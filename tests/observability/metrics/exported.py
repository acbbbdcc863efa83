"""Reads what an exporter serves."""

from __future__ import annotations

import urllib.request
from dataclasses import replace

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from observability.metrics.recorder import Recorder
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import CheckpointUploaded, CheckpointUploadFailed, FlopsCounted, RanksMeasured, RunStarted
from tests.observability.sample_run import restarted_run
from tests.tune.sample_search import SampleSearch
from tune.metrics import SearchMetrics

RUN = "digits-1"
FLOPS = FlopsCounted(per_sample=2e9, device="NVIDIA A10G", peak=140e12)
RANKS = RanksMeasured(
    step=7,
    communication_seconds=[0.5, 1.5],
    gpu_utilization=[0.75, 0.25],
    gpu_allocated_bytes=[3 * 2**30, 2 * 2**30],
    gpu_reserved_bytes=[4 * 2**30, 3 * 2**30],
)


UPLOADED = CheckpointUploaded(step=50, location="s3://bucket/digits-1", bytes=353_120, seconds=0.2)
UPLOAD_FAILED = CheckpointUploadFailed(location="s3://bucket/digits-1", reason="SlowDown")


def page(url: str) -> str:
    """The body of a scrape."""
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - loopback
        body: bytes = answer.read()
    return body.decode()


def families(url: str) -> dict[str, Metric]:
    """Metric families by their name in the inventory."""
    parsed = text_string_to_metric_families(page(url))
    return {f"{family.name}_total" if family.type == "counter" else family.name: family for family in parsed}


def values(url: str) -> dict[str, float]:
    """Values by series, e.g. `rtp_train_evaluation_loss{split="test"}`; the labels `run` and `search` are omitted."""
    found = {}
    for family in families(url).values():
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in {"run", "search"}}
            text = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
            found[sample.name + (f"{{{text}}}" if text else "")] = sample.value
    return found


def record_everything(recorder: Recorder) -> TrainingMetrics:
    """Record a whole run with a restart, and a search, so that every metric of the inventory has a value."""
    SearchMetrics(recorder, SampleSearch(trials=4, epochs=3).history)
    metrics = TrainingMetrics(recorder, run=RUN)
    metrics.handle(FLOPS)
    for event in restarted_run():
        metrics.handle(replace(event, dollars_per_hour=7.2) if isinstance(event, RunStarted) else event)
    metrics.handle(RANKS, UPLOADED, UPLOAD_FAILED)
    metrics.spool_backlog(4096)
    return metrics
