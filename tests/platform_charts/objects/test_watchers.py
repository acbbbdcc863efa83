"""The Deployments of the programs that follow jobs: their arguments, their rights, and the names that both sides use."""

from __future__ import annotations

from infra.spec.cluster_names import (
    ELASTIC_ANNOTATION,
    ELASTIC_LABEL,
    GATE_ANNOTATION,
    JOB_COLUMNS,
    MOST_ANNOTATION,
    RETURN_GATE,
    RETURN_LABEL,
    SIZES_ANNOTATION,
    SIZING_ANNOTATION,
)
from infra.spec.node_labels import CAPACITY_LABEL, LABEL_PREFIX
from observability.metrics.inventory import INVENTORY
from platform_charts.images.job_progress import __main__ as job_progress
from platform_charts.images.job_progress import searches
from platform_charts.images.job_progress.figures import NEWEST, PLANNED, STEP
from platform_charts.images.job_progress.reason import ENDED
from platform_charts.images.job_recorder import __main__ as job_recorder
from platform_charts.images.job_recorder import fold, pods
from platform_charts.images.job_sizer import __main__ as job_sizer
from platform_charts.images.job_sizer import reading
from platform_charts.jobs import rayjob
from platform_charts.objects.shares import RESOURCES
from tests.platform_charts.objects.samples import all_of, named

TEAMS = ["research", "production"]


def arguments_of(name: str) -> list[str]:
    (container,) = named(all_of("prod"), "Deployment", name)["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_the_programs_understand_their_arguments_and_follow_the_jobs_of_every_team() -> None:
    progress = job_progress.parser().parse_args(arguments_of("job-progress"))
    assert [progress.progress, progress.time_left, progress.reason] == list(JOB_COLUMNS.values())
    assert progress.prometheus == "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"
    recorder = job_recorder.parser().parse_args(arguments_of("job-recorder"))
    assert (recorder.namespace, recorder.most) == (TEAMS, 200)
    assert job_sizer.parser().parse_args(arguments_of("job-sizer")).namespace == TEAMS


def test_recorder_and_sizer_write_their_objects_in_the_namespaces_of_teams_only() -> None:
    written = {
        "job-recorder": [(team, "configmaps") for team in TEAMS],
        "job-sizer": [(team, kind) for team in TEAMS for kind in ("rayjobs", "rayclusters")],
    }
    for name, expected in written.items():
        rules = [
            (one["metadata"].get("namespace"), rule)
            for one in all_of("prod")
            if one["kind"] in {"Role", "ClusterRole"} and one["metadata"]["name"] == name
            for rule in one["rules"]
            if not {"get", "list", "watch"} >= set(rule["verbs"])
        ]
        assert [(team, resource) for team, rule in rules for resource in rule["resources"]] == expected
        if name == "job-sizer":
            assert {verb for _, rule in rules for verb in rule["verbs"]} - {"get", "list", "watch"} == {"patch"}


def test_the_columns_are_of_metrics_that_the_trainer_and_a_search_export() -> None:
    of_runs = {f"ray_{spec.name}" for spec in INVENTORY if spec.kind == "gauge" and spec.labels == ("run",)}
    assert {STEP, PLANNED, NEWEST} <= of_runs
    of_searches = {f"ray_{spec.name}": set(spec.labels[1:]) for spec in INVENTORY if spec.labels[0] == "search"}
    labels = {searches.TRIALS: {"status"}, searches.BEST: {"metric"}}
    assert {name: of_searches[name] for name in searches.GAUGES} == {
        name: labels.get(name, set()) for name in searches.GAUGES
    }
    assert set(searches.LABELS) == {"status", "metric"}


def test_both_sides_agree_on_names() -> None:
    assert rayjob.ENDED == ENDED == job_sizer.ENDED
    assert (f"{LABEL_PREFIX}/", CAPACITY_LABEL) == (fold.PREFIX, pods._CAPACITY)
    texts = (ELASTIC_ANNOTATION, SIZES_ANNOTATION, SIZING_ANNOTATION)
    assert texts == (reading.ELASTIC, reading.SIZES, job_sizer.TEXT)
    gate = (GATE_ANNOTATION, RETURN_GATE, RETURN_LABEL)
    assert gate == (reading.GATE_ANNOTATION, reading.GATE, job_sizer.GATE_LABEL)
    assert (reading.MOST, job_sizer.ELASTIC_LABEL) == (MOST_ANNOTATION, ELASTIC_LABEL)
    assert set(RESOURCES) == reading.COUNTED
