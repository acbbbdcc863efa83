"""The Deployment of the program that fills the columns of RayJobs."""

from __future__ import annotations

from infra.spec.cluster_names import JOB_COLUMNS
from observability.metrics.inventory import INVENTORY
from platform_charts.images.job_progress import searches
from platform_charts.images.job_progress.__main__ import parser
from platform_charts.images.job_progress.figures import NEWEST, PLANNED, STEP
from platform_charts.images.job_progress.reason import ENDED
from platform_charts.jobs import rayjob
from tests.platform_charts.objects.samples import named, objects_of


def test_the_program_understands_its_arguments() -> None:
    deployment = named(objects_of("dev")["monitoring"], "Deployment", "job-progress")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = parser().parse_args(container["args"])
    assert [options.progress, options.time_left, options.reason] == list(JOB_COLUMNS.values())
    assert options.prometheus == "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"


def test_the_program_reads_metrics_that_the_trainer_exports() -> None:
    exported = {f"ray_{spec.name}" for spec in INVENTORY if spec.kind == "gauge" and spec.labels == ("run",)}
    assert {STEP, PLANNED, NEWEST} <= exported


def test_the_program_reads_metrics_that_a_search_exports() -> None:
    exported = {f"ray_{spec.name}": set(spec.labels[1:]) for spec in INVENTORY if spec.labels[0] == "search"}
    assert {name: exported[name] for name in searches.GAUGES} == {
        name: {searches.TRIALS: {"status"}, searches.BEST: {"metric"}}.get(name, set()) for name in searches.GAUGES
    }
    assert set(searches.LABELS) == {"status", "metric"}


def test_both_halves_agree_which_jobs_are_over() -> None:
    assert ENDED == rayjob.ENDED
