"""What the pods of real nodes get from a sandbox's services."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.lifecycle.sandbox import detached
from infra.lifecycle.sandbox.keeper import lock_of
from infra.lifecycle.sandbox.services.authority import authority_folder
from infra.lifecycle.sandbox.services.facts import DATABASE_PORT, DATABASE_USER
from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.node_labels import LABEL_PREFIX
from tests.distribution import REAL_NODES
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.sandbox_services.running import Sandbox, running_sandbox, shared_memory
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group(REAL_NODES)

_GET = r"exec 3<>/dev/tcp/{}; printf 'GET {} HTTP/1.0\r\n\r\n' >&3; busybox cat <&3"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with running_sandbox() as found:
        yield found


def on(group: str) -> Manifest:
    return {f"{LABEL_PREFIX}/group": group}


def test_what_a_pod_writes_a_pod_on_another_node_reads(sandbox: Sandbox) -> None:
    writes = sandbox.team_pod("writes", "echo 42 >/mnt/value", nodeSelector=on("system"))
    sandbox.output(writes)
    reads = "busybox cat /mnt/value; busybox stat -c '%u:%g %a' /mnt; busybox stat -c '%u:%g' /mnt/value"
    said = sandbox.output(sandbox.team_pod("reads", reads, nodeSelector=on("a10g")))
    assert said.split("\n") == ["42", "1000:1000 750", "1000:1000"]


def test_a_team_reads_datasets_and_cannot_write_them(sandbox: Sandbox) -> None:
    (folder,) = Path(sandbox.services.shared).glob("*/datasets")
    (folder / "digits").write_text("data")
    script = "busybox cat /mnt/digits; echo; busybox touch /mnt/new || echo refused"
    said = sandbox.output(sandbox.team_pod("trains", script, claim="datasets", nodeSelector=on("a10g")))
    # Standard output and error reach the log in any order.
    assert {"data", "refused"} < set(said.split("\n"))
    assert "Read-only file system" in said


def test_only_pods_with_an_iam_role_get_credentials_and_they_reach_s3(sandbox: Sandbox) -> None:
    if not sandbox.services.has_aws:
        skipped("S3 API", "moto is not installed", "make env FOR=dev")
    ran("S3 API")
    script = f"echo ${{AWS_ENDPOINT_URL-none}}; [ -z $AWS_ENDPOINT_URL ] || {{ {_GET.format('${AWS_ENDPOINT_URL#http://}', '/')}; }}"
    script = script.replace("/dev/tcp/${AWS_ENDPOINT_URL#http://}", f"/dev/tcp/{sandbox.services.address}/443")
    said = sandbox.output(sandbox.team_pod("with-role", script, serviceAccountName="trainer"))
    assert said.startswith(sandbox.services.aws_endpoint)
    assert "rtp-dev-artifacts-" in said
    assert sandbox.output(sandbox.team_pod("without", script, serviceAccountName="default")) == "none"


def test_the_database_takes_tls_and_its_password_only(sandbox: Sandbox) -> None:
    if sandbox.services.database_password is None:
        skipped("PostgreSQL", "no initdb on PATH or under /usr/lib/postgresql", "apt-get install postgresql")
    import psycopg2  # noqa: PLC0415

    ran("PostgreSQL")
    where = {"host": sandbox.services.address, "port": DATABASE_PORT, "user": DATABASE_USER, "dbname": "postgres"}
    password = sandbox.services.database_password
    verified = {"sslmode": "verify-full", "sslrootcert": str(authority_folder(os.environ) / "ca.crt")}
    psycopg2.connect(**where, password=password, **verified).close()
    with pytest.raises(psycopg2.OperationalError, match="no encryption"):
        psycopg2.connect(**where, password=password, sslmode="disable")
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(**where, password="other", **verified)


def test_a_pod_of_monitoring_reaches_prometheus_by_the_name_that_the_stack_uses(sandbox: Sandbox) -> None:
    """Those of teams must not."""
    assert sandbox.prometheus.query("vector(1)")
    name = "kube-prometheus-stack-prometheus.monitoring.svc.cluster.local/9090"
    pod = sandbox.team_pod("asks", _GET.format(name, "/-/ready"))
    pod["metadata"]["namespace"] = MONITORING_NAMESPACE
    pod["spec"]["volumes"].clear()
    pod["spec"]["containers"][0]["volumeMounts"].clear()
    assert "Prometheus" in sandbox.output(pod)


@pytest.mark.extended
def test_services_leave_nothing_when_their_keeper_is_killed() -> None:
    before = shared_memory()
    with running_sandbox() as found:
        os.kill(int(lock_of(found.folder).read_text()), signal.SIGKILL)
        wait_until(lambda: not detached.is_running(found.folder))
        assert detached.stop(found.folder)
        assert list(found.folder.parent.iterdir()) == []
        wait_until(lambda: str(found.folder) not in _commands())
    assert shared_memory() == before


def _commands() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text())
        except OSError:  # the process has exited
            continue
    return "\n".join(found)
