"""RayJobs against KubeRay's CRDs and their CEL rules, on a real API server."""

from __future__ import annotations

from platform_charts.jobs.rayjob import render_job
from tests.engines.kubernetes_jobs import CONFIGS, fits, shipped
from tests.engines.kubernetes_platform import Environment, drifts, in_prod


def test_the_job_of_every_shipped_config_applies_without_a_warning_and_without_drift(environment: Environment) -> None:
    requests = [shipped(config, team=environment.team) for config in CONFIGS]
    rendered = [render_job(request, environment.target) for request in requests if fits(request, environment)]
    assert rendered
    for manifests in rendered:
        with environment.cluster.applied(*manifests):
            assert [one["kind"] for one in manifests if drifts(environment.cluster, one)] == []


@in_prod
def test_every_shipped_config_fits_prod(environment: Environment) -> None:
    assert all(render_job(shipped(config, team=environment.team), environment.target) for config in CONFIGS)
