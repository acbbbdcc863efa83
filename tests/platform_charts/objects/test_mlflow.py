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
    all_of,
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


def test_the_server_and_the_bootstrap_job_can_parse_their_environment() -> None:
    environment = _environment(named(objects_of("prod")["mlflow"], "Deployment", "mlflow"))
    server = ServerSettings.from_environment(environment)
    database = DatabaseSettings.from_environment(environment)
    assert (server.bucket, server.workers, server.port) == (FACTS.artifact_bucket, 4, 5000)
    assert (database.host, database.port, database.secret) == (
        FACTS.database_host,
        FACTS.database_port,
        FACTS.database_secret_arn,
    )
    [job] = of_kind(objects_of("prod")["mlflow"], "Job")
    bootstrap = BootstrapSettings.from_environment(_environment(job))
    assert (bootstrap.teams, bootstrap.namespace) == (("research", "production"), "mlflow")


def test_open_finds_the_server_and_no_other_pod() -> None:
    ui = SHARED_UIS["mlflow"]
    pods = {
        one["kind"]: one["spec"]["template"]
        for one in objects_of("prod")["mlflow"]
        if one["kind"] in {"Deployment", "Job"}
    }
    found = {kind for kind, pod in pods.items() if ui.labels.items() <= pod["metadata"]["labels"].items()}
    assert found == {"Deployment"}
    [container] = pods["Deployment"]["spec"]["containers"]
    assert ui.port in {port["containerPort"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["path"] == ui.health


def test_the_cleanup_can_parse_its_environment_and_command_line() -> None:
    job = _cleanup({"mlflow": {"delete_after_days": 7}, "database": {"max_allocated_gib": 250}})["jobTemplate"]["spec"]
    cleanup = CleanupSettings.from_environment(_environment({"spec": job}), is_preview=False)
    assert cleanup == CleanupSettings(bucket="b", older_than_days=7, storage_bytes=250 * 2**30, is_preview=False)
    assert DatabaseSettings.from_environment(_environment({"spec": job})).secret == "arn"


def test_a_cleanup_is_a_preview_or_suspended_by_setting_and_never_overlaps_another() -> None:
    assert _cleanup({})["concurrencyPolicy"] == "Forbid"

    def shown(cleanup: str) -> tuple[list[str], bool]:
        spec = _cleanup({"mlflow": {"cleanup": cleanup}})
        [container] = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        return container["command"][3:], spec["suspend"]

    assert shown("delete") == (["cleanup"], False)
    assert shown("preview") == (["cleanup", "--preview"], False)
    assert shown("suspended") == (["cleanup"], True)


def test_backup_and_drill_can_parse_their_environment_and_command_line() -> None:
    changes = {"mlflow": {"drill_artifacts": 7}, "database": {"max_allocated_gib": 250}}
    backup, drill = (_cron_job(name, changes)["jobTemplate"]["spec"] for name in (MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL))
    assert BackupSettings.from_environment(_environment({"spec": backup})).bucket == "b"
    assert DrillSettings.from_environment(_environment({"spec": drill}), backup=None, keeps=False) == DrillSettings(
        bucket="b", backup=None, keeps=False, artifacts_to_read=7, storage_bytes=250 * 2**30
    )
    for job in (backup, drill):
        assert DatabaseSettings.from_environment(_environment({"spec": job})).secret == "arn"
        [container] = job["template"]["spec"]["containers"]
        parser().parse_args(container["command"][3:])


def test_backup_and_drill_have_an_account_that_the_server_has_not() -> None:
    accounts = {
        name: _cron_job(name, {})["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
        for name in (MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL, MLFLOW_CLEANUP)
    }
    assert accounts == {MLFLOW_BACKUP: "mlflow-backup", MLFLOW_RESTORE_DRILL: "mlflow-backup", MLFLOW_CLEANUP: "mlflow"}
    assert named(_rendered({}), "ServiceAccount", "mlflow-backup")["automountServiceAccountToken"] is False


def test_backups_are_nightly_and_drills_weekly_unless_the_environment_is_disposable() -> None:
    cases: list[tuple[dict[str, Any], tuple[bool, bool]]] = [
        ({}, (False, False)),
        (DISPOSABLE, (True, True)),
        ({"mlflow": {"backup": "suspended"}}, (True, True)),
        ({"mlflow": {"restore_drill": "suspended"}}, (False, True)),
        ({**DISPOSABLE, "mlflow": {"backup": "nightly"}}, (False, False)),
    ]
    for changes, suspended in cases:
        found = tuple(_cron_job(name, changes)["suspend"] for name in (MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL))
        assert found == suspended, changes


def test_the_stack_and_the_image_use_the_same_folders_of_the_bucket() -> None:
    assert (names.ARTIFACT_FOLDER, names.BACKUP_FOLDER) == (image_names.ARTIFACT_FOLDER, image_names.BACKUP_FOLDER)


def test_the_server_allows_the_host_name_that_jobs_use_and_the_service_selects_its_pods_only() -> None:
    environment = _environment(named(objects_of("dev")["mlflow"], "Deployment", "mlflow"))
    service = named(objects_of("dev")["mlflow"], "Service", "mlflow")
    host, _, port = MLFLOW_URI.removeprefix("http://").partition(":")
    assert host in ServerSettings.from_environment(environment).allowed_hosts
    assert host.startswith(f"{service['metadata']['name']}.{service['metadata']['namespace']}.")
    assert [one["port"] for one in service["spec"]["ports"]] == [int(port)]
    [job] = of_kind(objects_of("dev")["mlflow"], "Job")
    server = named(objects_of("dev")["mlflow"], "Deployment", "mlflow")
    selector = service["spec"]["selector"].items()
    assert selector <= server["spec"]["template"]["metadata"]["labels"].items()
    assert not selector <= job["spec"]["template"]["metadata"]["labels"].items()


def test_containers_have_a_read_only_root_file_system_and_run_as_non_root() -> None:
    for spec in pod_specs(objects_of("dev")["mlflow"]):
        assert spec["securityContext"]["runAsNonRoot"]
        assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in spec["containers"])


def test_only_the_bootstrap_job_mounts_an_api_token() -> None:
    objects = objects_of("dev")["mlflow"]
    [job] = of_kind(objects, "Job")
    cleanup = _cleanup({})["jobTemplate"]["spec"]["template"]["spec"]
    server = named(objects, "Deployment", "mlflow")["spec"]["template"]["spec"]
    others = (named(objects, "ServiceAccount", "mlflow"), server, cleanup)
    assert [one["automountServiceAccountToken"] for one in others] == [False] * 3
    assert job["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_the_bootstrap_job_may_read_one_secret_per_namespace() -> None:
    roles = [one for one in of_kind(all_of("prod"), "Role") if one["metadata"]["name"] == "mlflow-bootstrap"]
    readable = {
        (one["metadata"]["namespace"], name)
        for one in roles
        for rule in one["rules"]
        if "get" in rule["verbs"]
        for name in rule["resourceNames"]
    }
    assert readable == {
        ("mlflow", "mlflow-server"),
        ("research", "mlflow-credentials"),
        ("production", "mlflow-credentials"),
    }
    assert not [rule for one in roles for rule in one["rules"] if "list" in rule["verbs"] or "watch" in rule["verbs"]]


def test_another_team_or_image_gives_another_bootstrap_job_and_another_size_does_not() -> None:
    image = RELEASE.images["mlflow"].model_copy(update={"digest": f"sha256:{'d' * 64}"})
    later = RELEASE.model_copy(update={"images": {**RELEASE.images, "mlflow": image}})
    assert len({_job({}), _job({"teams": [{"name": "newcomers"}]}), _job({}, later)}) == 3
    assert _job({}) == _job({"mlflow": {"replicas": 3, "workers": 7}})


def test_memory_grows_with_the_workers_and_only_several_replicas_have_a_disruption_budget() -> None:
    assert _memory({"mlflow": {"workers": 8}}) - _memory({"mlflow": {"workers": 2}}) == 6 * 512
    assert settings_of("dev").mlflow.replicas == 1
    assert of_kind(objects_of("dev")["mlflow"], "PodDisruptionBudget") == []
    [budget] = of_kind(objects_of("prod")["mlflow"], "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def _rendered(changes: dict[str, Any], release: ReleaseManifest = RELEASE) -> tuple[Manifest, ...]:
    stores = Stores(database_host="db", database_port=5432, database_secret_arn="arn", artifact_bucket="b")
    return mlflow(varied(changes), release, stores, registry=FACTS.registry)


def _job(changes: dict[str, Any], release: ReleaseManifest = RELEASE) -> str:
    [job] = of_kind(_rendered(changes, release), "Job")
    return str(job["metadata"]["name"])


def _cleanup(changes: dict[str, Any]) -> Manifest:
    """The spec of the cleanup's CronJob."""
    return _cron_job(MLFLOW_CLEANUP, changes)


def _cron_job(name: str, changes: dict[str, Any]) -> Manifest:
    """The spec of a CronJob."""
    found: Manifest = named(_rendered(changes), "CronJob", name)["spec"]
    return found


def _memory(changes: dict[str, Any]) -> int:
    [container] = named(_rendered(changes), "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["limits"]["memory"].removesuffix("Mi"))


def _environment(workload: Manifest) -> dict[str, str]:
    """The environment variables, with a placeholder for values of Secrets."""
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "secret") for one in container["env"]}
