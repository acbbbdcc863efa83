"""A connection to an environment's API server for one command: directly, or through a tunnel that the command opens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infra.kube.connection import API_SERVER
from infra.lifecycle.access.reach import Probe, can_connect
from infra.lifecycle.access.tunnel import open_tunnel
from infra.lifecycle.account.aws import Session
from infra.lifecycle.stack.stage import is_private
from infra.spec.settings.stack import StackSettings


@contextmanager
def connection(
    settings: StackSettings, session: Session, endpoint: str | None, probe: Probe, *, say: Callable[[str], None]
) -> Iterator[None]:
    """Let this process and those that it starts reach the API server.

    Opens a tunnel and sets RTP_API_SERVER if the endpoint is private, does not answer, and a tunnel's programs are here. The
    preflight says what is missing otherwise.

    Args:
        settings: the environment.
        session: boto3 session in its region.
        endpoint: URL of the API server; None before the cluster exists.
        probe: what this machine reaches.
        say: prints a line.

    Raises:
        PlatformError: the tunnel did not open.
    """
    needs_tunnel = endpoint is not None and is_private(settings) and can_connect(endpoint, probe) is not None
    if endpoint is None or not needs_tunnel or probe.missing_programs():
        yield
        return
    before = os.environ.get(API_SERVER)
    with open_tunnel(settings, session, endpoint) as url:
        say(f"the private endpoint is reached through a tunnel, {url}")
        os.environ[API_SERVER] = url
        try:
            yield
        finally:
            os.environ.pop(API_SERVER)
            if before is not None:
                os.environ[API_SERVER] = before
