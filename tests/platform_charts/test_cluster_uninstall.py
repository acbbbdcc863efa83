"""Kueue's chart is uninstalled on a real API server, after the stack's objects as Pulumi does it; needs Helm and the archive."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.lifecycle.sandbox.control_plane import ControlPlane
from platform_charts.objects.queueing import aggregated_roles
from tests.distribution import OPERATORS
from tests.engines.helm import find_archive, find_helm
from tests.engines.kubernetes import Cluster, engine_programs
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.charts.releases import installs_of

pytestmark = [pytest.mark.extended, pytest.mark.xdist_group(OPERATORS)]

Helm = Callable[..., None]


def helm_on(plane: ControlPlane, home: Path) -> Helm:
    """Runs helm on a control plane."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(plane.kubeconfig)}

    def run(*arguments: str, values: str = "") -> None:
        command = [find_helm(), *arguments, "--namespace", "kueue-system"]
        ended = subprocess.run(command, env=environment, input=values, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    return run


def test_kueue_is_uninstalled_without_waiting_for_roles_that_come_back(tmp_path: Path) -> None:
    archive, programs = find_archive("kueue"), engine_programs()
    values = yaml.safe_dump(installs_of(settings_of("dev"))["kueue"].values)
    with ControlPlane(tmp_path / "plane", programs=programs) as plane:
        helm, cluster = helm_on(plane, tmp_path), Cluster(plane)
        # Without the monitor, whose CRD comes with another chart.
        options = ("--set=enablePrometheus=false", "--values=-", "--create-namespace")
        helm("install", "kueue", str(archive), *options, values=values)
        for role in aggregated_roles():
            cluster.apply(role, manager="pulumi")
        cluster.delete_all(aggregated_roles(), seconds=30)
        helm("uninstall", "kueue", "--wait", "--timeout", "60s")
        left = [one["metadata"]["name"] for one in cluster.items("rbac.authorization.k8s.io/v1", "ClusterRole")]
        assert [name for name in left if "kueue" in name] == []
