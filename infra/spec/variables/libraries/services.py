"""Variables of MLflow, Kubernetes, AWS, Grafana and Jupyter."""

from __future__ import annotations

from infra.spec.variables.variable import Variable

MLFLOW = (
    Variable(
        name="MLFLOW_TRACKING_URI",
        meaning="tracking server of a job, for code that logs by itself",
        value="(the stack's)",
        used_by=("platform_charts.jobs",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_WORKSPACE",
        meaning="workspace of a team's runs",
        value="(the team)",
        used_by=("platform_charts.images.mlflow_server",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_ENABLE_WORKSPACES",
        meaning="stores tell workspaces apart, in programs of the server's image",
        value="true",
        used_by=("platform_charts.images.mlflow_server",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_FLASK_SERVER_SECRET_KEY",
        meaning="key that signs the server's sessions",
        value="(of the Secret `mlflow-server`)",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts.objects",
        ),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_AUTH_CONFIG_PATH",
        meaning="configuration of the server's logins",
        value="(a temporary file)",
        used_by=("platform_charts.images.mlflow_server",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_SERVER_ENABLE_JOB_EXECUTION",
        meaning="the server runs no jobs",
        value="false",
        used_by=(
            "observability",
            "platform_charts.images.mlflow_server",
            "training",
        ),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_DISABLE_TELEMETRY",
        meaning="no telemetry leaves the machine",
        value="true",
        used_by=(
            "platform_charts.images.mlflow_server",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training",
            "training/image/Dockerfile",
        ),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_HTTP_REQUEST_MAX_RETRIES",
        meaning="the platform retries itself",
        value="0",
        used_by=("training",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_HTTP_REQUEST_TIMEOUT",
        meaning="seconds of a request; more for a file",
        value="(10, and 300 for a file)",
        used_by=("training",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR",
        meaning="no progress bars",
        value="false",
        used_by=("training",),
        library="MLflow",
    ),
    Variable(
        name="MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT",
        meaning="no addresses in the output",
        value="true",
        used_by=("training",),
        library="MLflow",
    ),
    Variable(
        name="PGSSLMODE",
        meaning="the database's certificate is verified",
        value="verify-full",
        used_by=("platform_charts/images/mlflow_server/Dockerfile",),
        library="libpq",
    ),
    Variable(
        name="PGSSLROOTCERT",
        meaning="certificates of RDS",
        value="/etc/ssl/rds/global-bundle.pem",
        used_by=("platform_charts/images/mlflow_server/Dockerfile",),
        library="libpq",
    ),
)

KUBERNETES = (
    Variable(
        name="ENABLE_PREFIX_DELEGATION",
        meaning="nodes get prefixes of 16 addresses",
        value="true",
        used_by=(
            "infra.aws",
            "infra.lifecycle",
        ),
        library="Amazon VPC CNI",
    ),
    Variable(
        name="WARM_PREFIX_TARGET",
        meaning="prefixes that a node keeps in reserve",
        value="1",
        used_by=("infra.aws",),
        library="Amazon VPC CNI",
    ),
    Variable(
        name="ADDITIONAL_ENI_TAGS",
        meaning="tags of network interfaces",
        value="(the stack's)",
        used_by=("infra.aws",),
        library="Amazon VPC CNI",
    ),
    Variable(
        name="AWS_EC2_METADATA_DISABLED",
        meaning="pods of a sandbox ask no instance metadata",
        value="true",
        used_by=("infra.lifecycle",),
        library="AWS SDK",
    ),
    Variable(
        name="CNI_COMMAND", meaning="read by the sandbox's network plugin", used_by=("infra.lifecycle",), library="CNI"
    ),
    Variable(
        name="CNI_CONTAINERID",
        meaning="read by the sandbox's network plugin",
        used_by=("infra.lifecycle",),
        library="CNI",
    ),
    Variable(
        name="CNI_ARGS", meaning="read by the sandbox's network plugin", used_by=("infra.lifecycle",), library="CNI"
    ),
    Variable(
        name="NVIDIA_DRIVER_CAPABILITIES",
        meaning="what containers get of the driver",
        value="compute,utility",
        used_by=("training/image/Dockerfile",),
        library="NVIDIA Container Toolkit",
    ),
    Variable(
        name="HTTP_PROXY",
        meaning="a sandbox's KubeRay operator reaches pods through it",
        value="(the sandbox's proxy)",
        used_by=("infra.lifecycle",),
        library="Go",
    ),
    Variable(
        name="OTEL_TRACES_EXPORTER",
        meaning="the sandbox's registry sends no traces",
        value="none",
        used_by=("infra.lifecycle",),
        library="OpenTelemetry",
    ),
    Variable(
        name="GF_SERVER_HTTP_ADDR",
        meaning="address of `make monitor-up`'s Grafana",
        value="127.0.0.1",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_SERVER_HTTP_PORT",
        meaning="port of that Grafana",
        value="(a free one)",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_PATHS_DATA",
        meaning="its data",
        value="(in the folder of `make monitor-up`)",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_PATHS_LOGS",
        meaning="its logs",
        value="(in the folder of `make monitor-up`)",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_PATHS_PROVISIONING",
        meaning="its data source and dashboards",
        value="(in the folder of `make monitor-up`)",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_AUTH_ANONYMOUS_ENABLED",
        meaning="it asks for no login",
        value="true",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_AUTH_ANONYMOUS_ORG_ROLE",
        meaning="everybody may look",
        value="Viewer",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_ANALYTICS_REPORTING_ENABLED",
        meaning="it reports no usage",
        value="false",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="GF_ANALYTICS_CHECK_FOR_UPDATES",
        meaning="it asks for no updates",
        value="false",
        used_by=("training",),
        library="Grafana",
    ),
    Variable(
        name="JUPYTER_TOKEN",
        meaning="token of JupyterLab in a session",
        value="(random)",
        used_by=("training",),
        library="Jupyter",
    ),
    Variable(
        name="JUPYTER_RUNTIME_DIR",
        meaning="runtime folder of JupyterLab in a session",
        value="(in the session's own folder)",
        used_by=("training",),
        library="Jupyter",
    ),
)
