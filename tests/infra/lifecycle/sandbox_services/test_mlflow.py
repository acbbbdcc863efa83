"""MLflow's own Deployment and bootstrap Job on a real node, with the image that the sandbox builds."""

from __future__ import annotations

import base64
import os

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.image import engines
from infra.lifecycle.image.plan import BASE
from infra.lifecycle.image.runtime import has_runtime
from infra.lifecycle.sandbox.images.publish import sandbox_build
from infra.lifecycle.sandbox.images.stand_in import known_stand_in
from infra.lifecycle.sandbox.services.authority import authority_certificate
from infra.spec.cluster_names import MLFLOW_CREDENTIALS, MLFLOW_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from tests.distribution import REAL_NODES
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.sandbox_services.running import TEAM, Sandbox, fetched, running_sandbox
from tests.training.cluster.team_cluster import wait_until

pytestmark = [pytest.mark.xdist_group(REAL_NODES), pytest.mark.timeout(1800)]

_NAME = "MLflow on a real node"
_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "mlflow", "namespace": MLFLOW_NAMESPACE},
}


def needs_the_image() -> None:
    """Skip unless all but the code of MLflow's image is built, which takes minutes."""
    try:
        builder = engines.find()
    except RefusedError as error:
        skipped(_NAME, error.args[0], error.remedy or "")
    base = known_stand_in(builder, python=load_release().stack.python) or load_release().images[BASE].reference()
    build = sandbox_build("mlflow", base=base, authority=authority_certificate(os.environ))
    if not has_runtime(build, builder):
        skipped(_NAME, "its image is not built", "make sandbox ENV=dev REAL=1 builds it, once")


def test_mlflow_serves_with_the_credentials_of_a_team() -> None:
    needs_the_image()
    with running_sandbox() as sandbox:
        if sandbox.services.missing:
            skipped(_NAME, sandbox.services.missing[0], "apt-get install postgresql; make env FOR=dev")
        assert main(["image", "--env", "dev", "--push", "mlflow"]) == 0
        wait_until(lambda: _is_available(sandbox), seconds=900)
        ran(_NAME)
        url, login = f"http://{_address(sandbox)}:5000", _credentials(sandbox)
        made = fetched(f"{url}/api/2.0/mlflow/experiments/create", login=login, body={"name": "first"})
        path = f"{url}/api/2.0/mlflow/experiments/get?experiment_id={made['experiment_id']}"
        assert fetched(path, login=login)["experiment"]["name"] == "first"
        with pytest.raises(OSError, match="401"):
            fetched(path, login=(TEAM, "other"))


def _is_available(sandbox: Sandbox) -> bool:
    status = (sandbox.pods.cluster.read(_DEPLOYMENT) or {}).get("status", {})
    updated = int(status.get("updatedReplicas", 0))
    return updated > 0 and updated == status.get("availableReplicas")


def _address(sandbox: Sandbox) -> str:
    pods = sandbox.pods.cluster.items("v1", "Pod", namespace=MLFLOW_NAMESPACE, labels="app.kubernetes.io/name=mlflow")
    ready = [pod for pod in pods if any(one.get("ready") for one in pod["status"].get("containerStatuses", []))]
    return str(ready[0]["status"]["podIP"])


def _credentials(sandbox: Sandbox) -> tuple[str, str]:
    name = {"name": MLFLOW_CREDENTIALS, "namespace": TEAM}
    found: Manifest | None = sandbox.pods.cluster.read({"apiVersion": "v1", "kind": "Secret", "metadata": name})
    assert found is not None
    values = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
    return values["MLFLOW_TRACKING_USERNAME"], values["MLFLOW_TRACKING_PASSWORD"]
