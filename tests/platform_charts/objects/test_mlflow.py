"""MLflow's objects, checked with the program that they run."""

from __future__ import annotations

from typing import Any

from infra.spec import names
from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_CLEANUP, MLFLOW_RESTORE_DRILL
from infra.spec.manifest import Manifest
from infra.spec.names import MLFLOW_URI
from infra.spec.release import ReleaseManifest
from infra.spec.uis import SHARED_UIS
from platform_charts.images.mlflow_server import names as image_names
from platform_charts.images.mlflow_server.__main__ import parser
from platform_charts.images.mlflow_server.environment import (
    BackupSettings,
    BootstrapSettings,
    CleanupSettings,
    DatabaseSettings,
    DrillSettings,
    ServerSettings,
)
from platform_charts.objects.mlflow import mlflow
from platform_charts.objects.mlflow_pods import Stores
from tests.platform_charts.objects.samples import (
    FACTS,
    RELEASE,
    named,
    objects_of,
    of_kind,
    pod_specs,
    settings_of,
    varied,
)

DISPOSABLE = {
    "environment.kind": "test",
    "environment.expires": "2027-01-01T00:00:00Z",
    "budget": {"monthly_usd": 100, "email": "owner@example.com"},
}
"""Changes that make the sample a disposable environment."""


def made(changes: dict[str, Any], release: ReleaseManifest = RELEASE) -> tuple[Manifest, ...]:
    """MLflow's objects of a changed environment."""
    stores = Stores(database_host="db", database_port=5432, database_secret_arn="arn", artifact_bucket="b")
    return mlflow(varied(changes), release, stores, registry=FACTS.registry)


def cron_job(name: str, changes: dict[str, Any]) -> Manifest:
    """The spec of a CronJob."""
    found: Manifest = named(made(changes), "CronJob", name)["spec"]
    return found


def pod_of(workload: Manifest) -> Manifest:
    """The pod spec of a Deployment, a Job or the spec of a CronJob."""
    found: Manifest = workload.get("jobTemplate", workload)["spec"]["template"]["spec"]
    return found


def environment_of(workload: Manifest) -> dict[str, str]:
    """The environment variables, with a placeholder for values of Secrets."""
    [container] = pod_of(workload)["containers"]
    return {one["name"]: one.get("value", "secret") for one in container["env"]}


def test_the_server_and_the_bootstrap_job_can_parse_their_environment() -> None:
    environment = environment_of(named(objects_of("prod")["mlflow"], "Deployment", "mlflow"))
    server = ServerSettings.from_environment(environment)
    database = DatabaseSettings.from_environment(environment)
    assert (server.bucket, server.workers, server.port) == (FACTS.artifact_bucket, 4, 5000)
    assert (database.host, database.port) == (FACTS.database_host, FACTS.database_port)
    assert database.secret == FACTS.database_secret_arn
    [job] = of_kind(objects_of("prod")["mlflow"], "Job")
    bootstrap = BootstrapSettings.from_environment(environment_of(job))
    assert (bootstrap.teams, bootstrap.namespace) == (("research", "production"), "mlflow")


def test_cleanup_backup_and_drill_can_parse_their_environment_and_command_line() -> None:
    changes = {"mlflow": {"delete_after_days": 7, "drill_artifacts": 7}, "database": {"max_allocated_gib": 250}}
    found = {name: cron_job(name, changes) for name in (MLFLOW_CLEANUP, MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL)}
    variables = {name: environment_of(one) for name, one in found.items()}
    storage = 250 * 2**30
    cleanup = CleanupSettings.from_environment(variables[MLFLOW_CLEANUP], is_preview=False)
    assert cleanup == CleanupSettings(bucket="b", older_than_days=7, storage_bytes=storage, is_preview=False)
    assert BackupSettings.from_environment(variables[MLFLOW_BACKUP]).bucket == "b"
    drill = DrillSettings.from_environment(variables[MLFLOW_RESTORE_DRILL], backup=None, keeps=False)
    expected = DrillSettings(bucket="b", backup=None, keeps=False, artifacts_to_read=7, storage_bytes=storage)
    assert drill == expected
    for name, one in found.items():
        assert DatabaseSettings.from_environment(variables[name]).secret == "arn"
        [container] = pod_of(one)["containers"]
        parser().parse_args(container["command"][3:])
        # Backup and drill have an account that the server has not.
        expected_account = "mlflow" if name == MLFLOW_CLEANUP else "mlflow-backup"
        assert pod_of(one)["serviceAccountName"] == expected_account
    account = named(made({}), "ServiceAccount", "mlflow-backup")
    assert account["automountServiceAccountToken"] is False
    assert (names.ARTIFACT_FOLDER, names.BACKUP_FOLDER) == (image_names.ARTIFACT_FOLDER, image_names.BACKUP_FOLDER)


def test_a_cleanup_is_a_preview_or_suspended_by_setting_and_never_overlaps_another() -> None:
    for setting, expected in (
        ("delete", (["cleanup"], False)),
        ("preview", (["cleanup", "--preview"], False)),
        ("suspended", (["cleanup"], True)),
    ):
        spec = cron_job(MLFLOW_CLEANUP, {"mlflow": {"cleanup": setting}})
        [container] = pod_of(spec)["containers"]
        assert (container["command"][3:], spec["suspend"]) == expected
        assert spec["concurrencyPolicy"] == "Forbid"


def test_backups_are_nightly_and_drills_weekly_unless_the_environment_is_disposable() -> None:
    cases: list[tuple[dict[str, Any], tuple[bool, bool]]] = [
        ({}, (False, False)),
        (DISPOSABLE, (True, True)),
        ({"mlflow": {"backup": "suspended"}}, (True, True)),
        ({"mlflow": {"restore_drill": "suspended"}}, (False, True)),
        ({**DISPOSABLE, "mlflow": {"backup": "nightly"}}, (False, False)),
    ]
    for changes, suspended in cases:
        found = tuple(cron_job(name, changes)["suspend"] for name in (MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL))
        assert found == suspended, changes


def test_jobs_and_open_reach_the_server_and_no_other_pod() -> None:
    objects, ui = objects_of("prod")["mlflow"], SHARED_UIS["mlflow"]
    server, service = (named(objects, kind, "mlflow") for kind in ("Deployment", "Service"))
    host, _, port = MLFLOW_URI.removeprefix("http://").partition(":")
    assert host in ServerSettings.from_environment(environment_of(server)).allowed_hosts
    assert host.startswith(f"{service['metadata']['name']}.{service['metadata']['namespace']}.")
    assert [one["port"] for one in service["spec"]["ports"]] == [int(port)]
    [job] = of_kind(objects, "Job")
    for selector in (service["spec"]["selector"].items(), ui.labels.items()):
        assert selector <= server["spec"]["template"]["metadata"]["labels"].items()
        assert not selector <= job["spec"]["template"]["metadata"]["labels"].items()
    [container] = pod_of(server)["containers"]
    assert ui.port in {one["containerPort"] for one in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["path"] == ui.health


def test_pods_are_restricted_and_only_the_bootstrap_job_mounts_an_api_token() -> None:
    objects = objects_of("dev")["mlflow"]
    for spec in pod_specs(objects):
        assert spec["securityContext"]["runAsNonRoot"]
        assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in spec["containers"])
    [job] = of_kind(objects, "Job")
    account, server = named(objects, "ServiceAccount", "mlflow"), named(objects, "Deployment", "mlflow")
    others = (account, pod_of(server), pod_of(cron_job(MLFLOW_CLEANUP, {})))
    assert [one["automountServiceAccountToken"] for one in others] == [False] * 3
    assert pod_of(job)["automountServiceAccountToken"] is True


def test_another_team_or_image_gives_another_bootstrap_job_and_another_size_does_not() -> None:
    def name(changes: dict[str, Any], release: ReleaseManifest = RELEASE) -> str:
        [job] = of_kind(made(changes, release), "Job")
        return str(job["metadata"]["name"])

    image = RELEASE.images["mlflow"].model_copy(update={"digest": f"sha256:{'d' * 64}"})
    later = RELEASE.model_copy(update={"images": {**RELEASE.images, "mlflow": image}})
    assert len({name({}), name({"teams": [{"name": "newcomers"}]}), name({}, later)}) == 3
    assert name({}) == name({"mlflow": {"replicas": 3, "workers": 7}})


def test_memory_grows_with_the_workers_and_only_several_replicas_have_a_disruption_budget() -> None:
    def memory(workers: int) -> int:
        found = named(made({"mlflow": {"workers": workers}}), "Deployment", "mlflow")
        [container] = pod_of(found)["containers"]
        return int(container["resources"]["limits"]["memory"].removesuffix("Mi"))

    assert memory(8) - memory(2) == 6 * 512
    assert settings_of("dev").mlflow.replicas == 1
    assert of_kind(objects_of("dev")["mlflow"], "PodDisruptionBudget") == []
    [budget] = of_kind(objects_of("prod")["mlflow"], "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
