"""Names inside the cluster that several packages share: namespaces, classes, claims, ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from infra.spec.node_labels import LABEL_PREFIX

KUEUE_API = "kueue.x-k8s.io/v1beta2"
"""Kueue's storage version."""

MLFLOW_NAMESPACE = "mlflow"
MONITORING_NAMESPACE = "monitoring"
KUBERAY_NAMESPACE = "kuberay-system"
KUEUE_NAMESPACE = "kueue-system"
DASHBOARD_FOLDER = "grafana_folder"
"""Annotation of a dashboard's ConfigMap with its folder in Grafana."""

GPU_NAMESPACE = "gpu-system"
"""Namespace of device plugins and DCGM exporter: the only platform namespace that admits privileged pods."""

DATA_NAMESPACE = "data-sync"
"""Namespace of the Jobs that write the shared datasets; only administrators create them."""

SSO_NAMESPACE = "sso"
"""Namespace of the proxy behind the load balancer, in environments with `single_sign_on`."""

REAPER_NAMESPACE = "reaper"
"""Namespace of the CronJob that removes expired test clusters, in environments with `reaper`."""

SSO_CLIENT_SECRET = "oidc-client"  # noqa: S105 - a name
"""Secret in that namespace with `clientID` and `clientSecret`, which an administrator creates."""

PLATFORM_NAMESPACES = (
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    GPU_NAMESPACE,
    DATA_NAMESPACE,
    SSO_NAMESPACE,
    REAPER_NAMESPACE,
)
"""All platform namespaces; teams may not use these names."""

TRAINER_ACCOUNT = "trainer"
"""Service account of a team's jobs, in the team's namespace; see `infra.spec.names.trainer_account`."""

SUBMITTER_ROLE = "submitter"
"""Role of a team's members in its namespace; `platform_charts.objects.access` has its rules."""

SCHEDULER_ACCOUNT = "scheduler"
"""Service account, in each team's namespace, of the pods that submit the occurrences of a schedule; may do what a member may."""

DATA_ACCOUNT = "data-sync"
"""Service account of the Jobs that write the datasets, in their namespace; its IAM role reads `storage.dataset_sources`."""

READY_TIMEOUT_MINUTES = 40
"""Time for all pods of an admitted job to become ready, which includes a new GPU node and an image pull of some GB."""

Priority = Literal["low", "normal", "high"]

PRIORITY_PREFIX = "training-"
"""Prefix of priority class names: priority `normal` is the class `training-normal` in Kubernetes and Kueue."""


def priority_class(priority: Priority) -> str:
    """Name of a priority's PriorityClass and WorkloadPriorityClass."""
    return f"{PRIORITY_PREFIX}{priority}"


PLATFORM_PRIORITY = "platform-critical"
"""Priority class of components that every job depends on; team namespaces do not admit pods that use it."""

DATASETS_CLAIM = "datasets"
"""PersistentVolumeClaim of the datasets: read-only in each team's namespace, writable in `DATA_NAMESPACE`."""

LUSTRE_CLAIM = "lustre"
"""PersistentVolumeClaim of the FSx for Lustre file system, read-only in each team's namespace, where a stack has one."""

RUNS_CLAIM = "runs"
"""PersistentVolumeClaim of a team's runs, in that team's namespace only."""

DATASETS_PATH = "/mnt/datasets"
"""Mount path of the datasets in a job's pods: `/datasets` of the file system."""

LUSTRE_PATH = "/mnt/lustre"
"""Mount path of the FSx for Lustre file system in a job's pods: the folder of `storage.lustre.source`."""

RUNS_PATH = "/mnt/runs"
"""Mount path of a team's runs and data in a job's pods: `/teams/<team>` of the file system."""

SEARCHES_PATH = f"{RUNS_PATH}/searches"
"""Folder of a team's hyperparameter searches, each in a folder of its job's name."""

CACHE_PATH = "/mnt/cache"
"""Mount path of a job's part of the node's NVMe disks, in workers on nodes that have them; its contents go with the pod."""

TMP_GIB = 20
"""Largest size of /tmp in a job's pods, in GiB."""

CODE_PATH = "/mnt/code"
"""Mount path of users' own code in the pods of a job, on the import path of every Python process.

In a session it is a folder in the team's runs, in any other job the unpacked archive, read-only.
"""

CODE_ARCHIVE_PATH = "/mnt/code-archive"
"""Mount path of the archive of that code, which a run keeps."""

TRAINER_PATH = "/opt/ray-train-platform"
"""Folder of our packages in the trainer image, on its import path."""

MLFLOW_CREDENTIALS = "mlflow-credentials"
"""Secret in each team's namespace with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."""

MLFLOW_SERVER_SECRET = "mlflow-server"  # noqa: S105 - a name
"""Secret in MLflow's namespace with `flask-secret-key` and `admin-password`; MLflow's bootstrap Job creates it."""

MLFLOW_CLEANUP = "mlflow-cleanup"
"""CronJob in MLflow's namespace that deletes for good what users have deleted."""

MLFLOW_BACKUP = "mlflow-backup"
"""CronJob in MLflow's namespace that writes a backup, and the service account of backup and drill."""

MLFLOW_RESTORE_DRILL = "mlflow-restore-drill"
"""CronJob in MLflow's namespace that restores the newest backup beside the databases and compares."""

GP3_CLASS = "gp3"
EFS_CLASS = "efs"
LUSTRE_CLASS = "lustre"

SESSION_PREFIX = "session-"
"""Prefix of the names of interactive sessions, and so of their pods, to which their team may connect."""

LONGEST_JOB_NAME = 44
"""KubeRay names the job's cluster NAME-abcde and its head pod by the first 50 characters of that. It takes names of 47, of whose random
characters the pod would have two: a job's second cluster could then not make its head while that of the first one is still there
(ray-operator v1.6.2, controllers/ray/utils/util.go)."""

LONGEST_GRACE_SECONDS = 300
"""Longest termination grace period of a job's pods, which keep their GPUs for that time."""

POD_LOCK_VARIABLE = "RTP_POD_LOCK"
"""Environment variable of a job's workers: the file that the ranks of a pod share a lock on, until they have left it."""

LAST_SCRAPES_SECONDS = 60
"""Time for which the pods of a finished job stay: Prometheus scrapes their last values twice."""

PRICE_VARIABLE = "RTP_DOLLARS_PER_HOUR"
"""Environment variable of a job's head, and so of its driver: US dollars per hour of its pods' parts of nodes; of an elastic job, of the
head's."""

WORKER_PRICE_VARIABLE = "RTP_DOLLARS_PER_WORKER_HOUR"
"""The same of an elastic job: US dollars per hour of each worker's part of its pod's node."""

REQUESTS_VARIABLE = "RTP_REQUESTS"
"""Environment variable of a job's workers: the folder with what a member of the team asks of the run, a file for each kind of request."""

PROFILE_REQUEST = "profile.json"
"""File with a request for a profile (`training.profiling.request`)."""

RAY_PORTS = {
    "gcs": 6379,
    "dashboard": 8265,
    "client": 10001,
    "metrics": 8080,
    "as-metrics": 44217,
    "dash-metrics": 44227,
}
"""Ports of a Ray head by port name, which the PodMonitors select; workers have `metrics` only."""

NODE_PRICES = "node_group:node_dollars_per_hour:price"
"""Series with the price of a GPU node, by `group` and `instance_type`; each stack records it from its settings and the price table."""

TEAM_BUDGETS = "team:dollars:budget1d"
"""Series with the budget of a team, by `team`; each stack records it from its settings."""

NO_EVICTION = {f"{LABEL_PREFIX}/eviction": "refused"}
"""Label of pods that a drain must not evict, because their work would be lost; see `platform_charts.objects.disruption`."""

ELASTIC_ANNOTATION = "kueue.x-k8s.io/elastic-job"
"""Annotation of a RayJob whose number of workers may change while Kueue counts it, if `true` (Kueue 0.19.2, "Elastic workloads")."""

ELASTIC_LABEL = f"{LABEL_PREFIX}/elastic"
"""Label of the same RayJobs, also `true`, by which they can be selected."""

SIZES_ANNOTATION = f"{LABEL_PREFIX}/worker-pods"
"""Annotation of an elastic RayJob: the numbers of worker pods that its run can use, ascending, e.g. `1,2,4`."""

MOST_ANNOTATION = f"{LABEL_PREFIX}/most-worker-pods"
"""Annotation of an elastic RayJob: the most worker pods that its user lets it have, e.g. `2`; without it, the most of its sizes."""

SIZING_ANNOTATION = f"{LABEL_PREFIX}/sizing"
"""Annotation of an elastic RayJob: how many worker pods it has, and what becomes of them; `platform_charts.images.job_sizer` writes it."""

GATE_ANNOTATION = "kueue.x-k8s.io/admission-gated-by"
"""Annotation of a RayJob that Kueue does not admit while it is there (Kueue 0.19.2, "AdmissionGatedBy"); it can only be removed."""

RETURN_GATE = f"{LABEL_PREFIX}/quota-return"
"""Its value for a job that waits until elastic jobs have returned quota, which `platform_charts.images.job_sizer` removes."""

RETURN_LABEL = RETURN_GATE
"""Label of RayJobs that were submitted with that gate, `true`, by which they can be selected."""

JOB_SIZER_ACCOUNT = "job-sizer"
"""Service account, in the namespace of monitoring, of the program that changes the number of elastic jobs' workers."""

JOB_COLUMNS: Mapping[str, str] = {
    "progress": f"{LABEL_PREFIX}/progress",
    "time left": f"{LABEL_PREFIX}/time-left",
    "reason": f"{LABEL_PREFIX}/reason",
}
"""Columns that `kubectl get rayjobs` has of ours, and the annotation of a RayJob that each shows. `platform_charts.images.job_progress`
writes them; see `platform_charts.charts.crds`."""
