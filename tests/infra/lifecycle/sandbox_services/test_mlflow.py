"""MLflow's own Deployment and bootstrap Job on a real node, with the image that the sandbox builds."""

from __future__ import annotations

import json
import os

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.image import engines
from infra.lifecycle.image.plan import BASE
from infra.lifecycle.image.runtime import has_runtime
from infra.lifecycle.sandbox.images.publish import sandbox_build
from infra.lifecycle.sandbox.images.stand_in import known_stand_in
from infra.lifecycle.sandbox.services.authority import authority_certificate
from infra.spec.cluster_names import MLFLOW_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from tests.distribution import REAL_NODES
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.sandbox_services.mlflow_api import mlflow_answer
from tests.infra.lifecycle.sandbox_services.running import TEAM, Sandbox, running_sandbox
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


@pytest.mark.long
def test_mlflow_serves_with_the_credentials_of_a_team() -> None:
    needs_the_image()
    with running_sandbox() as sandbox:
        if sandbox.services.missing:
            skipped(_NAME, sandbox.services.missing[0], "apt-get install postgresql; make env FOR=dev")
        assert main(["image", "--env", "dev", "--push", "mlflow"]) == 0
        wait_until(lambda: _is_available(sandbox), seconds=900)
        ran(_NAME)
        created = mlflow_answer(sandbox, "experiments/create", body={"name": "first"})
        path = f"experiments/get?experiment_id={json.loads(created)['experiment_id']}"
        assert json.loads(mlflow_answer(sandbox, path))["experiment"]["name"] == "first"
        assert "You are not authenticated" in mlflow_answer(sandbox, path, login=(TEAM, "other"))


def _is_available(sandbox: Sandbox) -> bool:
    status = (sandbox.pods.cluster.read(_DEPLOYMENT) or {}).get("status", {})
    updated = int(status.get("updatedReplicas", 0))
    return updated > 0 and updated == status.get("availableReplicas")
