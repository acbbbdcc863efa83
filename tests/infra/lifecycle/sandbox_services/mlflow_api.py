"""MLflow's API as a team's pod reaches it: by the Service's name, with the team's account."""

from __future__ import annotations

import base64
import json
import shlex

from infra.spec.cluster_names import MLFLOW_CREDENTIALS, MLFLOW_NAMESPACE
from infra.spec.manifest import api_object
from infra.spec.node_labels import LABEL_PREFIX
from tests.infra.lifecycle.sandbox_services.running import TEAM, Sandbox

_HOST = f"mlflow.{MLFLOW_NAMESPACE}.svc.cluster.local"


def mlflow_answer(sandbox: Sandbox, path: str, *, login: tuple[str, str] | None = None, body: object = None) -> str:
    """What MLflow answers to a GET, or with a body to a POST.

    Args:
        sandbox: where it runs.
        path: of the API, after `/api/2.0/mlflow/`.
        login: user and password; default: the team's.
        body: of the request, as JSON.
    """
    text = "" if body is None else json.dumps(body)
    user = ":".join(login or _credentials(sandbox))
    lines = (
        f"{'POST' if text else 'GET'} /api/2.0/mlflow/{path} HTTP/1.0",
        f"Host: {_HOST}:5000",
        f"Authorization: Basic {base64.b64encode(user.encode()).decode()}",
        f"X-MLFLOW-WORKSPACE: {TEAM}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
    )
    request = shlex.quote("\r\n".join((*lines, "", text)))
    script = f"exec 3<>/dev/tcp/{_HOST}/5000; printf %s {request} >&3; busybox cat <&3"
    pod = sandbox.team_pod("client", script, nodeSelector={f"{LABEL_PREFIX}/group": "system"})
    head, _, answered = sandbox.output(pod).replace("\r", "").partition("\n\n")
    assert head.startswith("HTTP/1.")
    return answered


def _credentials(sandbox: Sandbox) -> tuple[str, str]:
    found = sandbox.pods.cluster.read(api_object("v1", "Secret", MLFLOW_CREDENTIALS, namespace=TEAM))
    assert found is not None
    values = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
    return values["MLFLOW_TRACKING_USERNAME"], values["MLFLOW_TRACKING_PASSWORD"]
