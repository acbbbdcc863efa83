"""The platform's objects of every environment on a real API server."""

from __future__ import annotations

from tests.engines.kubernetes_platform import Environment, drifts


def test_every_object_applies_without_a_warning(environment: Environment) -> None:
    assert all(environment.cluster.read(manifest) is not None for manifest in environment.manifests)
    assert environment.cluster.warnings == []


def test_applying_objects_again_changes_nothing(environment: Environment) -> None:
    drifted = [
        f"{manifest['kind']} {manifest['metadata']['name']}"
        for manifest in environment.manifests
        if drifts(environment.cluster, manifest)
    ]
    assert drifted == []


def test_the_volume_claims_of_every_team_are_bound(environment: Environment) -> None:
    claims = [manifest for manifest in environment.manifests if manifest["kind"] == "PersistentVolumeClaim"]
    teams = {team.name for team in environment.settings.teams}
    assert {claim["metadata"]["namespace"] for claim in claims} >= teams
    for claim in claims:
        environment.cluster.await_(claim, lambda found: found["status"]["phase"] == "Bound", what="bound")


def test_the_api_server_keeps_every_alert_as_it_is(environment: Environment) -> None:
    """The schema of the Prometheus Operator drops fields that it does not know."""
    (rules,) = [manifest for manifest in environment.manifests if manifest["kind"] == "PrometheusRule"]
    found = environment.cluster.read(rules)
    assert found is not None
    assert found["spec"]["groups"] == rules["spec"]["groups"]
