"""The stack's reaper on a real API server."""

from __future__ import annotations

from infra.spec.release import load_release
from infra.spec.settings.reaper import ReaperSettings
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes_platform import Environment, drifts, in_dev


@in_dev
def test_its_objects_are_accepted_without_drift_and_without_warnings_of_pod_security(environment: Environment) -> None:
    settings = environment.settings.model_copy(update={"reaper": ReaperSettings()})
    phases = platform_objects(settings, load_release(), environment.stack.facts)
    found = [
        one
        for phase in phases.values()
        for one in phase
        if "reaper" in {one["metadata"]["name"], one["metadata"].get("namespace")}
    ]
    assert {"Namespace", "ServiceAccount", "CronJob", "NetworkPolicy"} == {one["kind"] for one in found}
    with environment.cluster.applied(*found):
        assert [one["metadata"]["name"] for one in found if drifts(environment.cluster, one)] == []
        assert environment.cluster.warnings == []
