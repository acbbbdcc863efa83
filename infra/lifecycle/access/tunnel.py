"""A tunnel to a private API server: an SSM session that forwards a local port through one of the system nodes.

No node has an open port or an SSH key for it; IAM decides who may start a session, and CloudTrail records it (Systems Manager
user guide, "Start a session", port forwarding to a remote host). The nodes' role and AMI have what SSM needs.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from urllib.parse import urlsplit

from infra.kube.forwarder import forwarder
from infra.lifecycle.account.aws import Session
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.kubeconfig import PROGRAM
from infra.spec.names import STACK_TAG, cluster_name, stack_tag
from infra.spec.node_labels import SYSTEM_GROUP
from infra.spec.settings.stack import StackSettings

DOCUMENT = "AWS-StartPortForwardingSessionToRemoteHost"
"""SSM document of AWS that forwards a port to another host."""

PLUGIN = "session-manager-plugin"
"""The AWS CLI's plugin for sessions."""

_OPEN_SECONDS = 30.0
_POLL_SECONDS = 0.1


def missing_programs() -> tuple[str, ...]:
    """Programs that a tunnel needs and that are not on PATH."""
    return tuple(name for name in (PROGRAM, PLUGIN) if shutil.which(name) is None)


def find_node(settings: StackSettings, session: Session) -> str:
    """Instance ID of a running system node.

    Raises:
        RefusedError: none runs.
    """
    filters = {
        f"tag:{STACK_TAG}": stack_tag(settings),
        "tag:Name": f"{SYSTEM_GROUP}*",
        "instance-state-name": "running",
    }
    pages = (
        session.client("ec2")
        .get_paginator("describe_instances")
        .paginate(Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()])
    )
    found = sorted(
        instance["InstanceId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    )
    if not found:
        raise RefusedError(
            f"cluster {cluster_name(settings)} has no running system node to forward through",
            remedy=f"bring up the AWS resources first: `make up ENV={settings.environment.name}`",
        )
    node: str = found[0]
    return node


def command(*, node: str, endpoint: str, region: str, port: int) -> list[str]:
    """The AWS CLI's command that forwards `port` of this machine to the API server."""
    host = urlsplit(endpoint)
    parameters = {
        "host": [host.hostname],
        "portNumber": [str(host.port or 443)],
        "localPortNumber": [str(port)],
    }
    arguments = ["ssm", "start-session", "--region", region, "--target", node, "--document-name", DOCUMENT]
    return [PROGRAM, *arguments, "--parameters", json.dumps(parameters)]


@contextmanager
def open_tunnel(settings: StackSettings, session: Session, endpoint: str, *, port: int = 0) -> Iterator[str]:
    """Forward a port of this machine to the API server; yields the URL for RTP_API_SERVER.

    Args:
        settings: the environment.
        session: boto3 session in its region.
        endpoint: URL of the cluster's API server.
        port: local port; 0 takes an ephemeral one.

    Raises:
        RefusedError: a program is missing, no system node runs, or the port is in use.
        PlatformError: the session did not start; carries the AWS CLI's message.
    """
    if missing := missing_programs():
        raise RefusedError(
            f"no {' and no '.join(f'`{name}`' for name in missing)} on PATH, which the tunnel needs",
            remedy="install the AWS CLI, version 2, and its Session Manager plugin",
        )
    node, port = find_node(settings, session), _free_port(port)
    arguments = command(node=node, endpoint=endpoint, region=settings.aws.region, port=port)
    with forwarder(arguments) as (process, said):
        _wait_until_open(process, port, node, said)
        yield f"https://localhost:{port}"


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise RefusedError(f"port {wanted} of this machine is in use: {error}", remedy="set PORT=…") from error
        port: int = probe.getsockname()[1]
    return port


def _wait_until_open(process: subprocess.Popen[bytes], port: int, node: str, said: IO[str]) -> None:
    deadline = time.monotonic() + _OPEN_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PlatformError(
                f"no SSM session with node {node}: {_text(said)}",
                remedy="allow ssm:StartSession on this instance and on the document " + DOCUMENT,
            )
        with socket.socket() as probe:
            probe.settimeout(_POLL_SECONDS)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_POLL_SECONDS)
    raise PlatformError(f"the SSM session with node {node} opened no port within {_OPEN_SECONDS:g} s")


def _text(said: IO[str]) -> str:
    said.seek(0)
    return said.read().strip() or "the AWS CLI ended without a message"
