"""Ray's autoscaler beside the head, and the container that submits a RayJob, as KubeRay 1.6 makes them."""

from __future__ import annotations

import copy

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import SHELL, Cluster, field_value, label_value, token_environment

_LOGS = {"name": "ray-logs", "mountPath": "/tmp/ray"}
_AUTOSCALER = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
_DEFAULT_RESOURCES = {"cpu": "500m", "memory": "512Mi"}
_OVERRIDES = ("image", "imagePullPolicy", "resources", "securityContext", "command", "args")
_ADDITIONS = ("env", "envFrom", "volumeMounts")
_DASHBOARD_PORT = 8265


def add_autoscaler(cluster: Cluster, spec: Manifest) -> None:
    """Adds the autoscaler to a head's pod spec: its container, its service account, and the volume with Ray's logs."""
    options = copy.deepcopy(cluster.spec.get("autoscalerOptions", {}))
    container = {
        "name": "autoscaler",
        "image": spec["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": SHELL,
        "args": [_AUTOSCALER],
        "env": [
            label_value("RAY_CLUSTER_NAME", "ray.io/cluster"),
            field_value("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            field_value("RAY_HEAD_POD_NAME", "metadata.name"),
            {"name": "KUBERAY_CRD_VER", "value": "v1"},
            *token_environment(cluster),
        ],
        "resources": {"limits": _DEFAULT_RESOURCES, "requests": _DEFAULT_RESOURCES},
        **{key: options[key] for key in _OVERRIDES if key in options},
    }
    for key in _ADDITIONS:
        if key in options:
            container[key] = [*container.get(key, []), *options[key]]
    spec["containers"].append(container)
    spec.setdefault("volumes", []).append({"name": "ray-logs", "emptyDir": {}})
    for one in (spec["containers"][0], container):
        one.setdefault("volumeMounts", []).append(_LOGS)
    spec["restartPolicy"] = "Never"
    spec["serviceAccountName"] = spec.get("serviceAccountName", cluster.name)[-50:]


def submitter_container(manifest: Manifest, cluster: Cluster, template: Manifest) -> Manifest:
    """The container that submits the job and follows its log; its command is KubeRay's unless it has one."""
    container: Manifest = copy.deepcopy(template)
    job_id = f"{manifest['metadata']['name']}-00000"
    dashboard = f"{cluster.head_host}:{_DASHBOARD_PORT}"
    if not container.get("command"):
        container["command"] = ["/bin/bash", "-ce", "--"]
        container["args"] = [_submit_script(manifest["spec"], job_id, f"http://{dashboard}")]
    container["env"] = [
        *container.get("env", []),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "RAY_DASHBOARD_ADDRESS", "value": dashboard},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": job_id},
        *token_environment(cluster),
    ]
    return container


def _submit_script(spec: Manifest, job_id: str, address: str) -> str:
    """Does what KubeRay's script does: wait for the dashboard, submit unless the job exists, follow its log."""
    health = f"urllib.request.urlopen('{address}/api/gcs_healthz', timeout=10).read()"
    return (
        f'until python -c "import urllib.request; {health}"; do sleep 2; done ; '
        f"if ! ray job status --address {address} {job_id} ; "
        f"then ray job submit --address {address} --no-wait --submission-id {job_id} -- {spec['entrypoint']} ; fi ; "
        f"ray job logs --address {address} --follow {job_id}"
    )
