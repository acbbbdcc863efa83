"""A group for which AWS has no capacity, with the real Kueue and the gate's permissions; only the autoscaler's status is a double.

Kueue's time for a job's pods is shortened to half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from infra.lifecycle.sandbox import kueue_admission
from infra.spec.cluster_names import GPU_NAMESPACE, KUEUE_API
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import NO_CAPACITY_TAINT
from platform_charts.images.node_gate.__main__ import Flavors, check_capacity
from platform_charts.images.node_gate.objects import Group
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated, operating
from tests.platform_charts.test_cluster_capacity import environment
from tests.waiting import wait_until
from training.cluster.job_manifest import admitted_group

GATE = f"system:serviceaccount:{GPU_NAMESPACE}:node-gate"
GROUPS = {"reserved": Group(devices={}, parts=("reserved",)), "on-demand": Group(devices={}, parts=("on-demand",))}
HOLD = timedelta(minutes=50)
STATUS = ("kube-system", "cluster-autoscaler-status")
_SECONDS = 120


@pytest.fixture(scope="module")
def impatient() -> Iterator[Operated]:
    """The environment without the node of `reserved`; Kueue evicts a job whose pods are not ready after half a minute."""
    ours = kueue_admission.configuration

    def shortened(**options: Any) -> Manifest:  # noqa: ANN401 - of the function that it replaces
        configuration = ours(**options)
        waiting = configuration["waitForPodsReady"]
        waiting["timeout"] = waiting["recoveryTimeout"] = "30s"
        waiting["requeuingStrategy"]["backoffBaseSeconds"] = 1
        return configuration

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kueue_admission, "configuration", shortened)
        with operating(environment()) as found:
            if "kueue" not in found.operators:
                pytest.skip("Kueue is not built: make engines")
            found.cluster.delete_all([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "reserved-0"}}])
            yield found


def poll(plane: Operated, *, state: str, now: datetime) -> list[str]:
    """A poll of the gate, after the autoscaler has written this state of the Auto Scaling group of `reserved`."""
    name = "eks-reserved-1a2b3c4-12c3a8f0-1b2c-3d4e-5f60-0123456789ab"
    text = {
        "time": f"{now:%Y-%m-%d %H:%M:%S}.5 +0000 UTC",
        "nodeGroups": [{"name": name, "scaleUp": {"status": state}}],
    }
    written = api_object("v1", "ConfigMap", STATUS[1], namespace=STATUS[0], data={"status": yaml.safe_dump(text)})
    plane.cluster.apply(written, manager="cluster-autoscaler")
    flavors = Flavors(plane.plane.client(GATE), status=STATUS)
    return check_capacity(flavors, taint=NO_CAPACITY_TAINT.model_dump(), groups=GROUPS, hold=HOLD, now=now)


def evictions(plane: Operated, submitted: Manifest) -> int:
    """How often Kueue has evicted the job because its pods were not ready."""
    stats = _status(plane, submitted).get("schedulingStats", {}).get("evictions", ())
    return sum(int(one["count"]) for one in stats if one["reason"] == "PodsReadyTimeout")


def _group(plane: Operated, submitted: Manifest) -> str:
    return admitted_group({"status": _status(plane, submitted)})


def _status(plane: Operated, submitted: Manifest) -> Manifest:
    """The status of a job's Workload; empty before Kueue has created it."""
    metadata = submitted["metadata"]
    labels = f"kueue.x-k8s.io/job-uid={metadata['uid']}"
    found = plane.cluster.items(KUEUE_API, "Workload", namespace=metadata["namespace"], labels=labels)
    return found[0].get("status", {}) if found else {}


@pytest.mark.extended
def test_a_job_whose_group_has_no_capacity_gets_the_next_group_and_one_without_a_choice_waits(
    impatient: Operated,
) -> None:
    submitted = impatient.submit(job("moves", team="research", workers=4, gpu_model="a10g"))
    # Kueue alone tries the same group again.
    wait_until(lambda: evictions(impatient, submitted) == 1, seconds=_SECONDS)
    wait_until(lambda: _group(impatient, submitted) == "reserved", seconds=_SECONDS)
    now = datetime.now(UTC)
    assert poll(impatient, state="Backoff", now=now) == [
        "group reserved: AWS has no capacity; jobs with a choice use other groups"
    ]
    wait_until(lambda: _group(impatient, submitted) == "on-demand", seconds=_SECONDS)
    named = impatient.submit(job("stays", team="research", workers=4, group="reserved"))
    wait_until(lambda: _group(impatient, named) == "reserved", seconds=_SECONDS)
    assert poll(impatient, state="NoActivity", now=now + timedelta(minutes=49)) != []
    assert poll(impatient, state="NoActivity", now=now + timedelta(minutes=51)) == []
    flavor = impatient.cluster.read(
        {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "reserved"}}
    )
    assert flavor is not None
    assert [one["key"] for one in flavor["spec"]["nodeTaints"]] == ["nvidia.com/gpu"]
    impatient.remove(submitted, named)
