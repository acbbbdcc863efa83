"""An S3 API on loopback for benchmarks: moto's server, which keeps its objects in temporary files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from training.local_port import local_port

BUCKET = "benchmark"
_START_SECONDS = 60.0


@contextmanager
def local_s3(log: Path) -> Iterator[str]:
    """Serve while the block runs, and let boto3 in this process find it; yields an address of a folder in an empty bucket.

    Raises:
        RuntimeError: moto is not installed, or its server does not start.
    """
    if find_spec("moto") is None:
        raise RuntimeError("this comparison needs moto's S3 server: make env FOR=dev")
    port = local_port(0, usual=5500)
    before = dict(os.environ)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
        try:
            _await(port, server, log)
            os.environ.update(
                AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
                AWS_ACCESS_KEY_ID="benchmark",
                AWS_SECRET_ACCESS_KEY="benchmark",  # noqa: S106 - moto accepts any
                AWS_DEFAULT_REGION="us-east-1",
            )
            import boto3  # noqa: PLC0415 - reads the variables

            boto3.session.Session().client("s3").create_bucket(Bucket=BUCKET)
            yield f"s3://{BUCKET}/runs"
        finally:
            server.kill()
            os.environ.clear()
            os.environ.update(before)


def _await(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"moto's server does not start: {log.read_text()[-1000:]}") from None
            time.sleep(0.1)
        else:
            return
