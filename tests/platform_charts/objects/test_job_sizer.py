"""The Deployment of the program that resizes elastic jobs, and what it may do."""

from __future__ import annotations

from infra.spec.cluster_names import (
    ELASTIC_ANNOTATION,
    ELASTIC_LABEL,
    GATE_ANNOTATION,
    MOST_ANNOTATION,
    RETURN_GATE,
    RETURN_LABEL,
    SIZES_ANNOTATION,
    SIZING_ANNOTATION,
)
from platform_charts.images.job_sizer import __main__ as program
from platform_charts.images.job_sizer import reading
from platform_charts.jobs import rayjob
from platform_charts.objects.shares import RESOURCES
from tests.platform_charts.objects.samples import named, objects_of


def test_the_program_resizes_the_jobs_of_every_team() -> None:
    deployment = named(objects_of("prod")["monitoring"], "Deployment", "job-sizer")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert program.parser().parse_args(container["args"]).namespace == ["research", "production"]


def test_it_writes_jobs_and_their_clusters_in_the_namespaces_of_teams_only() -> None:
    roles = [
        one
        for phase in objects_of("prod").values()
        for one in phase
        if one["kind"] in {"Role", "ClusterRole"} and one["metadata"]["name"] == "job-sizer"
    ]
    writing = [
        (one["metadata"].get("namespace"), *rule["resources"], *(set(rule["verbs"]) - {"get", "list", "watch"}))
        for one in roles
        for rule in one["rules"]
        if not {"get", "list", "watch"} >= set(rule["verbs"])
    ]
    kinds = ("rayjobs", "rayclusters")
    assert writing == [(team, kind, "patch") for team in ("research", "production") for kind in kinds]


def test_both_sides_agree_on_names() -> None:
    assert (reading.ELASTIC, reading.SIZES, program.TEXT) == (ELASTIC_ANNOTATION, SIZES_ANNOTATION, SIZING_ANNOTATION)
    assert (reading.GATE_ANNOTATION, reading.GATE, program.GATE_LABEL) == (GATE_ANNOTATION, RETURN_GATE, RETURN_LABEL)
    assert reading.MOST == MOST_ANNOTATION
    assert program.ELASTIC_LABEL == ELASTIC_LABEL
    assert set(RESOURCES) == reading.COUNTED
    assert program.ENDED == rayjob.ENDED
