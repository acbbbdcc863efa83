"""The platform's objects of every environment on a real API server."""

from __future__ import annotations

from tests.engines.kubernetes_platform import Environment, drifts


def test_every_object_applies_without_a_warning_and_applying_it_again_changes_nothing(environment: Environment) -> None:
    cluster, manifests = environment.cluster, environment.manifests
    assert all(cluster.read(manifest) is not None for manifest in manifests)
    drifted = [f"{one['kind']} {one['metadata']['name']}" for one in manifests if drifts(cluster, one)]
    assert drifted == []
    assert cluster.warnings == []


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
