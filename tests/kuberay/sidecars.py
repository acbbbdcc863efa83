"""The container that submits a RayJob, as KubeRay 1.6 makes it."""

from __future__ import annotations

import copy

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import Cluster, token_environment

_DASHBOARD_PORT = 8265


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
