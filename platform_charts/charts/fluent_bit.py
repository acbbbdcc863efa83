"""Values of fluent-bit: the logs of every container on every node, shipped to CloudWatch or Loki.

Of the two charts that AWS users choose between this one follows Fluent Bit's releases; aws-for-fluent-bit of aws/eks-charts
packages a version of the branch 4 with AWS's own plugins, which the core plugin `cloudwatch_logs` replaces.

A record is a JSON object with these keys, of which a pod without the label has none: `namespace`, `pod`, `container`, `node`,
`team`, `job`, `stream`, and either `log`, the text of a line or of a whole traceback, or `record`, the parsed JSON line.
`training.cluster.shipped_logs` reads it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from infra.spec.manifest import RESTRICTED_CONTAINER, Manifest
from infra.spec.names import PLATFORM_ACCOUNTS, cluster_name, container_log_group
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.settings.logs import url_port
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import daemon_affinity

NAME = "fluent-bit"
"""Name of the release, and by the chart's templates of its DaemonSet and its container."""

METRICS_PORT = 2020

_ACCOUNT = PLATFORM_ACCOUNTS["logs"][0]
_CONFIGURATION = "/fluent-bit/etc/conf"
_STATE = "/var/lib/fluent-bit"
"""Folder on the node with read positions and buffered records, which outlive the pod."""

_BUFFER_LIMIT = "1G"
"""Largest buffer on the disk of a node while the destination is unreachable; the oldest records are dropped first."""

_CHUNKS_IN_MEMORY = 32
"""Chunks in memory; a chunk has up to about 2 MB (Fluent Bit manual, "Buffering and storage"), and the container 256 MiB."""

_PREFIX = r"(?:(?:\x1b\[\d+m)?\([^)]*pid=[^)]*\)(?:\x1b\[0m)? )?"
"""What Ray writes before a line of a worker or an actor: `(TrainWorker pid=41)`, in colour or not."""


def fluent_bit_values(settings: StackSettings, images: ImageNames) -> Manifest:
    """Values of the chart, for the destination of the settings.

    It has no priority class: on a full node it waits for room instead of evicting a job's pod.
    """
    image = images[NAME]
    return {
        "image": {"repository": image.name, "tag": image.tag, "digest": image.digest or ""},
        "testFramework": {"enabled": False},
        "serviceAccount": {"create": True, "name": _ACCOUNT.name},
        "tolerations": [{"operator": "Exists"}],
        **daemon_affinity(is_shared=settings.cluster.is_shared),
        "resources": CONTAINERS[NAME].manifest(),
        # The kubelet's log files are readable by root only; root without capabilities is enough.
        "securityContext": {
            **{key: value for key, value in RESTRICTED_CONTAINER.items() if key != "runAsNonRoot"},
            "runAsUser": 0,
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "daemonSetVolumes": [
            {"name": "logs", "hostPath": {"path": "/var/log"}},
            {"name": "state", "hostPath": {"path": _STATE, "type": "DirectoryOrCreate"}},
        ],
        "daemonSetVolumeMounts": [
            {"name": "logs", "mountPath": "/var/log", "readOnly": True},
            {"name": "state", "mountPath": _STATE},
        ],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}},
        "serviceMonitor": {"enabled": True, "interval": "30s", "scrapeTimeout": "10s"},
        "config": {
            "service": _SERVICE,
            "inputs": _INPUT,
            "filters": _FILTERS,
            "outputs": _output(settings),
            "customParsers": _PARSERS,
        },
    }


_SERVICE = f"""[SERVICE]
    Daemon Off
    Flush 5
    Log_Level warn
    Parsers_File /fluent-bit/etc/parsers.conf
    Parsers_File {_CONFIGURATION}/custom_parsers.conf
    HTTP_Server On
    HTTP_Listen 0.0.0.0
    HTTP_Port {METRICS_PORT}
    Health_Check On
    storage.path {_STATE}/buffer
    storage.max_chunks_up {_CHUNKS_IN_MEMORY}
    storage.backlog.mem_limit 16M
    storage.metrics On
"""

# A job's pod may live for seconds, so new files are looked for every 5 s instead of every 60 s. Its own log would feed itself.
_INPUT = f"""[INPUT]
    Name tail
    Alias containers
    Tag kube.*
    Path /var/log/containers/*.log
    Exclude_Path /var/log/containers/{NAME}-*_{_ACCOUNT.namespace}_{NAME}-*.log
    multiline.parser cri
    DB {_STATE}/positions.db
    DB.locking true
    Read_from_Head On
    Refresh_Interval 5
    Rotate_Wait 30
    Buffer_Max_Size 256k
    Skip_Long_Lines On
    storage.type filesystem
"""

# Only pods' names and three labels are kept of what the API server knows: the whole would triple the size, which is the price.
_FILTERS = f"""[FILTER]
    Name multiline
    Match kube.*
    multiline.key_content log
    multiline.parser python-traceback
    emitter_storage.type filesystem

[FILTER]
    Name kubernetes
    Match kube.*
    Kube_Tag_Prefix kube.var.log.containers.
    Merge_Log On
    Merge_Log_Key record
    Keep_Log Off
    K8S-Logging.Parser Off
    K8S-Logging.Exclude Off
    Annotations Off
    Buffer_Size 0

[FILTER]
    Name nest
    Match kube.*
    Operation lift
    Nested_under kubernetes
    Add_prefix k8s_

[FILTER]
    Name nest
    Match kube.*
    Operation lift
    Nested_under k8s_labels
    Add_prefix label_

[FILTER]
    Name modify
    Match kube.*
    Rename k8s_namespace_name namespace
    Rename k8s_pod_name pod
    Rename k8s_container_name container
    Rename k8s_host node
    Rename label_{LABEL_PREFIX}/team team
    Rename label_{LABEL_PREFIX}/job job

[FILTER]
    Name record_modifier
    Match kube.*
    Allowlist_key log
    Allowlist_key record
    Allowlist_key stream
    Allowlist_key namespace
    Allowlist_key pod
    Allowlist_key container
    Allowlist_key node
    Allowlist_key team
    Allowlist_key job
"""

# Fluent Bit's own parser `python` ends a traceback at the markers `^^^^` below a line of code, which Python writes since 3.11.
_PARSERS = f"""[MULTILINE_PARSER]
    Name python-traceback
    Type regex
    Flush_Timeout 1000
    Rule "start_state" "/^{_PREFIX}Traceback \\(most recent call last\\):/" "frame"
    Rule "frame" "/^{_PREFIX}\\s+\\S/" "frame"
    Rule "frame" "/^{_PREFIX}[A-Za-z_][\\w.]*(?::|\\s*$)/" "raised"
    Rule "raised" "/^{_PREFIX}\\s*$/" "chained"
    Rule "chained" "/^{_PREFIX}(?:During handling of|The above exception was)/" "chained"
    Rule "chained" "/^{_PREFIX}\\s*$/" "chained"
    Rule "chained" "/^{_PREFIX}Traceback \\(most recent call last\\):/" "frame"
"""


def _output(settings: StackSettings) -> str:
    """The output section of the destination. It retries without limit; the size of the buffer bounds what is kept."""
    lines = _loki(settings) if settings.logs.destination == "loki" else _cloudwatch(settings)
    common = ("Match kube.*", "Retry_Limit no_limits", f"storage.total_limit_size {_BUFFER_LIMIT}")
    return "".join(f"{line}\n" for line in ("[OUTPUT]", *(f"    {line}" for line in (*lines, *common))))


def _cloudwatch(settings: StackSettings) -> tuple[str, ...]:
    """A stream per container. The stack makes the group, because Fluent Bit's own would have no key."""
    return (
        "Name cloudwatch_logs",
        f"region {settings.aws.region}",
        f"log_group_name {container_log_group(settings)}",
        "log_stream_prefix unknown.",
        "log_stream_template $namespace.$pod.$container",
        "auto_create_group Off",
    )


def _loki(settings: StackSettings) -> tuple[str, ...]:
    """Labels of few values only; a pod's name is in the line (Grafana Loki, "Cardinality")."""
    url = settings.logs.loki_url
    assert url is not None, "destination loki without a URL, which the settings' rules exclude"
    return (
        "Name loki",
        f"Host {urlsplit(url).hostname}",
        f"Port {url_port(url)}",
        f"Tls {'On' if url.startswith('https:') else 'Off'}",
        f"Labels cluster={cluster_name(settings)}",
        "Label_Keys $namespace,$team,$job,$container",
        "Line_Format json",
    )
