"""The Deployment of the program that records jobs, and what it may do."""

from __future__ import annotations

from infra.spec.node_labels import CAPACITY_LABEL, LABEL_PREFIX
from platform_charts.images.job_recorder import fold, pods
from platform_charts.images.job_recorder.__main__ import parser
from tests.platform_charts.objects.samples import named, objects_of


def test_the_program_records_the_jobs_of_every_team() -> None:
    deployment = named(objects_of("prod")["monitoring"], "Deployment", "job-recorder")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = parser().parse_args(container["args"])
    assert options.namespace == ["research", "production"]
    assert options.most == 200


def test_it_writes_in_the_namespaces_of_teams_only() -> None:
    roles = [
        one
        for phase in objects_of("prod").values()
        for one in phase
        if one["kind"] in {"Role", "ClusterRole"} and one["metadata"]["name"] == "job-recorder"
    ]
    writing = [
        (one["metadata"].get("namespace"), sorted(rule["resources"]))
        for one in roles
        for rule in one["rules"]
        if not {"get", "list", "watch"} >= set(rule["verbs"])
    ]
    assert writing == [("research", ["configmaps"]), ("production", ["configmaps"])]


def test_both_sides_agree_on_labels_of_nodes_and_objects() -> None:
    assert (f"{LABEL_PREFIX}/", CAPACITY_LABEL) == (fold.PREFIX, pods._CAPACITY)
