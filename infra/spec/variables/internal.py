"""Environment variables of the platform's own processes, which users do not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.spec.variables.variable import Variable

_JOBS = (
    Variable(
        name="RTP_OUTPUT_FOLDER",
        meaning="folder for the files of a command of `make run`; on a cluster the same for all nodes",
        used_by=("training",),
    ),
    Variable(name="RTP_SUBMITTED", meaning="Unix time at which a driver's job was submitted", used_by=("training",)),
    Variable(
        name="RTP_RUN_ARGUMENTS",
        meaning="what names the run of a job on the command line of its user, e.g. `ENV=prod JOB=digits TEAM=research`",
        used_by=("training",),
    ),
    Variable(
        name="RTP_DOLLARS_PER_HOUR",
        meaning="US dollars per hour of the parts of nodes that a job holds; of an elastic job, that its head holds",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_DOLLARS_PER_WORKER_HOUR",
        meaning="US dollars per hour of the part of a node that each worker of an elastic job holds",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_CODE_FOLDER",
        meaning="folder with the unpacked code of a job's user",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_CACHE_GIB",
        meaning="size of the cache on the NVMe disks of a job's nodes",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_REQUESTS",
        meaning="folder of a worker with what the team asks of the run, e.g. a profile",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_POD_LOCK",
        meaning="file that the ranks of a pod lock until they have left it, and it may end",
        used_by=("platform_charts.jobs", "training"),
    ),
    Variable(
        name="RTP_POD_LOG",
        meaning="file that also gets the lines of a rank's log: the standard output of its container",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_RAY_ADDRESS", meaning="address of the driver's Ray cluster, for its ranks", used_by=("training",)
    ),
    Variable(
        name="RTP_DRIVER_PID",
        meaning="process ID of the driver, whose end ends its ranks",
        used_by=(
            "observability",
            "training",
        ),
    ),
    Variable(
        name="RTP_FAKE_NVIDIA_COM_GPU",
        meaning="names of the GPUs of a container on a sandbox's node that has none",
        used_by=("training",),
    ),
    Variable(
        name="RTP_KEPT_RELEASE",
        meaning="outputs that an update keeps while it takes a step of an upgrade back, as JSON",
        used_by=(
            "infra.aws",
            "infra.lifecycle",
        ),
    ),
)

_PROGRAMS = (
    Variable(
        name="TEAMS",
        meaning="namespaces of the teams that get an account at MLflow, separated by commas",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="POD_NAMESPACE",
        meaning="namespace of the MLflow server",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_ARTIFACT_BUCKET",
        meaning="S3 bucket of artifacts",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_ALLOWED_HOSTS",
        meaning="Host headers that the MLflow server accepts, separated by commas",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_WORKERS",
        meaning="worker processes of the MLflow server",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_DB_HOST",
        meaning="host of MLflow's database",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_DB_PORT",
        meaning="port of MLflow's database",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="MLFLOW_DB_SECRET_ARN",
        meaning="secret in Secrets Manager with the login of the database",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="LISTEN_HOST",
        meaning="address that the MLflow server listens on",
        value="0.0.0.0",  # noqa: S104 - a default of the program that listens
        used_by=("platform_charts.images.mlflow_server",),
    ),
    Variable(
        name="LISTEN_PORT",
        meaning="port that the MLflow server listens on",
        value="5000",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="LOGIN_REFRESH_SECONDS",
        meaning="seconds between two readings of the database's login",
        value="60",
        used_by=("platform_charts.images.mlflow_server",),
    ),
    Variable(
        name="CLEANUP_OLDER_THAN_DAYS",
        meaning="days after which what users have deleted is deleted for good",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="CLEANUP_STORAGE_GIB",
        meaning="GiB that the database may grow to",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="DRILL_ARTIFACTS",
        meaning="versions of artifacts that a restore drill reads to the end",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="DRILL_STORAGE_GIB",
        meaning="GiB that the database server may grow to in a restore drill",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
    ),
    Variable(
        name="JOB_NAME", meaning="name of the Job of an occurrence of a schedule", used_by=("platform_charts.jobs",)
    ),
)

INTERNAL: Final[Mapping[str, tuple[Variable, ...]]] = {
    "Of jobs and runs: one process of the platform sets it for another": _JOBS,
    "Of programs in our images: their manifests set it": _PROGRAMS,
}
"""By who sets them."""
