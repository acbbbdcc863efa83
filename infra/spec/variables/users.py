"""Environment variables that a user may set before a command; `.env.example` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.spec.variables.variable import Variable

_RUNS = (
    Variable(
        name="RTP_RUN_DIRECTORY",
        meaning="folder of the runs; sets `run.directory`",
        value=".local/runs",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_TRACKING_URI",
        meaning="MLflow's tracking server; sets `tracking.uri`",
        value="(the database in `.local/mlflow`)",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
    ),
    Variable(
        name="RTP_EXPERIMENT",
        meaning="MLflow's experiment; sets `tracking.experiment`",
        value="ray-train-platform",
        used_by=("training",),
    ),
    Variable(
        name="MLFLOW_TRACKING_USERNAME",
        meaning="user at a tracking server with logins",
        used_by=("platform_charts.images.mlflow_server",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_TRACKING_PASSWORD",
        meaning="password of that user",
        used_by=("platform_charts.images.mlflow_server",),
        library="MLflow",
    ),
    Variable(
        name="CUDA_VISIBLE_DEVICES",
        meaning="numbers of the GPUs that a run may use",
        value="(all)",
        used_by=(
            "observability",
            "training",
            "tune",
        ),
        library="CUDA",
    ),
    Variable(
        name="OMP_NUM_THREADS",
        meaning="threads of a program that computes on CPUs",
        value="(the cores, divided among the ranks)",
        used_by=(
            "observability",
            "training",
        ),
        library="OpenMP",
    ),
    Variable(
        name="PYTORCH_ALLOC_CONF",
        meaning="options of PyTorch's allocator of GPU memory; takes precedence over `compute.allocator`",
        used_by=("training",),
        library="PyTorch",
    ),
    Variable(
        name="PYTORCH_CUDA_ALLOC_CONF",
        meaning="the same, under its name before PyTorch 2.9",
        used_by=("training",),
        library="PyTorch",
    ),
    Variable(
        name="CXX", meaning="C++ compiler of `torch.compile`", value="g++", used_by=("training",), library="PyTorch"
    ),
    Variable(
        name="RAY_AUTH_MODE",
        meaning="`token` protects a local Ray cluster with a token, `disabled` leaves it open to every user of this machine",
        value="token",
        used_by=(
            ".ci/run",
            "observability",
            "training",
        ),
        library="Ray",
    ),
    Variable(
        name="UV_DEFAULT_INDEX",
        meaning="package index of the environment, and for `requirements.txt` of a code folder",
        value="(that of pip)",
        used_by=(".make/environment",),
        library="uv",
    ),
    Variable(
        name="UV_FIND_LINKS",
        meaning="folder or page with wheels for the environment, and for `requirements.txt` of a code folder",
        used_by=(".make/environment",),
        library="uv",
    ),
    Variable(
        name="UV_OFFLINE",
        meaning="1 asks no index: packages come from `UV_FIND_LINKS` or earlier downloads",
        used_by=(".make/environment",),
        library="uv",
    ),
    Variable(
        name="UV_CACHE_DIR",
        meaning="folder of downloaded packages",
        value="(~/.cache/uv; .local/cache/uv if there is no room)",
        used_by=(".make/environment",),
        library="uv",
    ),
    Variable(
        name="GRAFANA_HOME",
        meaning="home folder of the Grafana that `make monitor-up` starts",
        value="/usr/share/grafana",
        used_by=("training",),
    ),
)

_CLUSTER = (
    Variable(
        name="RTP_STACK_OUTPUTS",
        meaning="file with the output of `pulumi stack output --json`, which commands with `--env` read instead of asking Pulumi",
        used_by=(
            "infra.lifecycle",
            "infra.spec",
        ),
    ),
    Variable(
        name="KUBECONFIG",
        meaning="kubeconfig of the cluster",
        value="(the stack's cluster, with AWS credentials)",
        used_by=(
            "infra.kube",
            "training",
        ),
    ),
    Variable(
        name="RTP_API_SERVER",
        meaning="URL of the tunnel to a private API server, as `make tunnel` prints it",
        value="(the cluster's endpoint)",
        used_by=(
            "infra.kube",
            "infra.lifecycle",
        ),
    ),
    Variable(
        name="RTP_LOKI_URL",
        meaning="URL of Loki, for the logs of jobs that are gone",
        value="(the environment's `logs.loki_url`)",
        used_by=("training",),
    ),
    Variable(
        name="AWS_PROFILE",
        meaning="profile with the AWS credentials; every other variable of the AWS SDK works too",
        value="default",
        library="boto3",
    ),
    Variable(
        name="AWS_REGION",
        meaning="AWS region of S3 requests, and of `reap` without `--region`",
        value="(the profile's)",
        used_by=(
            "infra.lifecycle",
            "platform_charts.images.mlflow_server",
            "platform_charts.jobs",
            "platform_charts.objects",
            "training",
        ),
        library="AWS SDK",
    ),
    Variable(
        name="AWS_DEFAULT_REGION",
        meaning="the same, as boto3 itself reads it",
        value="(the profile's)",
        used_by=(
            "infra.lifecycle",
            "observability",
            "platform_charts.objects",
        ),
        library="boto3",
    ),
    Variable(
        name="AWS_ACCESS_KEY_ID",
        meaning="access key of the AWS credentials",
        value="(the profile's)",
        used_by=(
            "infra.lifecycle",
            "observability",
        ),
        library="boto3",
    ),
    Variable(
        name="AWS_SECRET_ACCESS_KEY",
        meaning="secret of that access key",
        value="(the profile's)",
        used_by=(
            "infra.lifecycle",
            "observability",
        ),
        library="boto3",
    ),
    Variable(
        name="AWS_ENDPOINT_URL",
        meaning="URL of an S3-compatible store, for checkpoints and datasets",
        value="(AWS)",
        used_by=(
            "infra.lifecycle",
            "observability",
            "training",
        ),
        library="boto3",
    ),
    Variable(
        name="AWS_MAX_ATTEMPTS",
        meaning="attempts of a request to the bucket of `checkpoint.remote`",
        value="6",
        used_by=("training",),
        library="boto3",
    ),
    Variable(name="HTTPS_PROXY", meaning="proxy of the requests to AWS and registries", library="boto3, urllib3"),
    Variable(
        name="PULUMI_CONFIG_PASSPHRASE",
        meaning="passphrase that encrypts the secrets of the Pulumi state",
        value="(for a test cluster, one is made)",
        used_by=("infra.lifecycle",),
        library="Pulumi",
    ),
    Variable(
        name="PULUMI_CONFIG_PASSPHRASE_FILE",
        meaning="file with that passphrase",
        used_by=("infra.lifecycle",),
        library="Pulumi",
    ),
)

_MACHINE = (
    Variable(
        name="RTP_ENGINES",
        meaning="folder where `make engines` builds programs",
        value="~/.cache/ray-train-platform/engines",
        used_by=(
            ".ci/run",
            "infra.lifecycle",
        ),
    ),
    Variable(
        name="RTP_REGISTRY",
        meaning="folder where the registry of `make sandbox REAL=1` keeps images",
        value="(`registry` beside RTP_ENGINES)",
        used_by=("infra.lifecycle",),
    ),
    Variable(
        name="KUBEBUILDER_ASSETS",
        meaning="folder of the etcd and kube-apiserver that `make sandbox` starts",
        value="(those of `make engines`)",
        used_by=("infra.lifecycle",),
        library="Kubebuilder",
    ),
    Variable(
        name="KUBERAY_OPERATOR",
        meaning="KubeRay operator binary that `make sandbox` starts",
        value="(that of `make engines`)",
        used_by=("infra.lifecycle",),
    ),
    Variable(
        name="KUEUE_CONTROLLER",
        meaning="Kueue controller binary that `make sandbox` starts",
        value="(that of `make engines`)",
        used_by=("infra.lifecycle",),
    ),
    Variable(
        name="PROMETHEUS",
        meaning="Prometheus binary for `make monitor-up`, `make sandbox` and `make bench-fleet`",
        value="prometheus",
        used_by=(
            "infra.lifecycle",
            "training",
            "tests",
        ),
    ),
    Variable(
        name="XDG_CACHE_HOME",
        meaning="folder of the caches: engines, and what API servers offer",
        value="~/.cache",
        used_by=(
            ".ci/run",
            "infra.kube",
            "infra.lifecycle",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training/image/Dockerfile",
        ),
        library="XDG",
    ),
)

_SETUP = (
    Variable(
        name="PYTHON",
        meaning="interpreter of the environment",
        value="(python3.11 to python3.14, or python3, on PATH)",
        used_by=(
            ".make/environment",
            "Makefile",
        ),
    ),
    Variable(
        name="TORCH_VERSION",
        meaning="version of torch for `make env` and `make image VARIANT=cpu`",
        value="(that of the lock)",
        used_by=(
            ".make/environment",
            "Makefile",
            "infra.lifecycle",
        ),
    ),
    Variable(
        name="TORCH_INDEX",
        meaning="package index that has TORCH_VERSION",
        used_by=(
            ".make/environment",
            "Makefile",
            "infra.lifecycle",
        ),
    ),
    Variable(
        name="UV_COMPILE_BYTECODE",
        meaning="0 leaves packages uncompiled, which installs faster and starts slower",
        value="1",
        used_by=(
            ".make/environment",
            "training/image/Dockerfile",
        ),
        library="uv",
    ),
    Variable(
        name="PIP_INDEX_URL",
        meaning="package index that pip asks, also for `make release-lock`; pip's other variables work too",
        value="(PyPI)",
        used_by=(".make/environment",),
        library="pip",
    ),
)

_TESTS = (
    Variable(
        name="PROMTOOL", meaning="promtool binary", value="(that of `make engines`, or on PATH)", used_by=("tests",)
    ),
    Variable(
        name="ALERTMANAGER",
        meaning="Alertmanager binary",
        value="(that of `make engines`, or on PATH)",
        used_by=("tests",),
    ),
    Variable(name="AMTOOL", meaning="amtool binary", value="(that of `make engines`, or on PATH)", used_by=("tests",)),
    Variable(
        name="HELM",
        meaning="Helm binary",
        value="(on PATH)",
        used_by=(
            ".ci/run",
            "tests",
        ),
    ),
    Variable(
        name="HELM_CHARTS",
        meaning="folder with archives of the release's charts",
        value="(where `make charts` downloads them)",
        used_by=("tests",),
    ),
    Variable(
        name="ANYSCALE_FOLDER",
        meaning="folder with the packages of tests/training/vms/anyscale.lock",
        value="(none)",
        used_by=(".ci/run", "tests"),
    ),
    Variable(
        name="OLD_MLFLOW_FOLDER",
        meaning="folder with the packages of tests/training/tracking/old_mlflow.lock",
        value="(none)",
        used_by=(".ci/run", "tests"),
    ),
    Variable(name="FLUENT_BIT", meaning="Fluent Bit binary", value="(on PATH)", used_by=("tests",)),
    Variable(
        name="RTP_TERRAFORM_PLUGINS",
        meaning="folder with a mirror of Terraform's providers",
        value="/opt/tf-plugins",
        used_by=("tests",),
    ),
)

USERS: Final[Mapping[str, tuple[Variable, ...]]] = {
    "Runs and searches": _RUNS,
    "Environments and clusters": _CLUSTER,
    "Kubernetes and images on this machine": _MACHINE,
    "Set-up of the Python environment": _SETUP,
    "Programs that tests run; without one, its tests are skipped": _TESTS,
}
"""By topic."""
