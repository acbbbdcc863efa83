"""A bucket behind a proxy that counts requests, and can hold or change answers; and the program."""

from __future__ import annotations

import http.client
import io
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import boto3
from botocore.config import Config

from platform_charts.images.data_sync.__main__ import main
from tests.engines.s3 import S3Api
from tests.engines.servers import Handler, serving

PROGRAMS = Path(__file__).parents[4] / "platform_charts" / "images"
PART = 5 * 1024 * 1024
"""The smallest part that S3 takes, except for the last one."""


@dataclass
class Proxy:
    """What it saw, and what it does to answers.

    Attributes:
        gets: key and range of every object that was asked for.
        lists: requests for lists.
        before: is called with the key before a request for an object is passed on.
        change: changes the body of an answer.
    """

    gets: list[tuple[str, str]] = field(default_factory=list)
    lists: int = 0
    before: Callable[[str], None] = lambda _key: None
    change: Callable[[str, bytes], bytes] = lambda _key, body: body

    def keys(self) -> list[str]:
        """The keys that were asked for."""
        return [key for key, _ in self.gets]

    def forget(self) -> None:
        """Count from zero, and leave answers as they are."""
        self.gets.clear()
        self.lists = 0
        self.before = lambda _key: None
        self.change = lambda _key, body: body


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own, a folder of datasets, and the program.

    Attributes:
        name: of the bucket.
        client: of the S3 API, without the proxy.
        proxy: between the program and the API.
        root: folder of the datasets.
        environment: variables of the program.
    """

    name: str
    client: Any
    proxy: Proxy
    root: Path
    environment: dict[str, str]

    def put(self, objects: dict[str, bytes], **options: str) -> None:
        """Upload objects in one piece each, below `data/`."""
        for key, body in objects.items():
            self.client.put_object(Bucket=self.name, Key=f"data/{key}", Body=body, **options)

    def put_parts(self, key: str, body: bytes, *, sizes: list[int], **options: str) -> None:
        """Upload an object in parts of these sizes; `options` are those of the upload."""
        target = {"Bucket": self.name, "Key": f"data/{key}"}
        upload = self.client.create_multipart_upload(**target, **options)["UploadId"]
        parts, start = [], 0
        for number, size in enumerate(sizes, 1):
            part = {"PartNumber": number, "UploadId": upload, "Body": body[start : start + size]}
            uploaded = self.client.upload_part(**target, **part, **options)
            names = ("ETag", "ChecksumCRC32")
            parts.append({"PartNumber": number} | {name: uploaded[name] for name in names if name in uploaded})
            start += size
        self.client.complete_multipart_upload(**target, UploadId=upload, MultipartUpload={"Parts": parts})

    def _arguments(self, options: Sequence[str], destination: str) -> list[str]:
        return [f"s3://{self.name}/data", destination, f"--root={self.root}", *options]

    def start(self, *options: str, destination: str = "datasets/x") -> subprocess.Popen[str]:
        """Start a copy as a process, as in the image."""
        command = [sys.executable, "-m", "data_sync", *self._arguments(options, destination)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=PROGRAMS, env=self.environment, **pipes)

    def run(self, *options: str, destination: str = "datasets/x") -> tuple[int, str]:
        """Copy; returns the exit status and the output."""
        with patch.dict(os.environ, self.environment), patch("boto3.DEFAULT_SESSION", None):
            return run_here(self._arguments(options, destination))

    def files(self, name: str = "x") -> dict[str, bytes]:
        """All files of a dataset by relative path."""
        folder = self.root / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_here(arguments: Sequence[str]) -> tuple[int, str]:
    """Run the program in this process; returns its exit status and output."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output), patch("signal.signal"):
        return main(arguments), output.getvalue()


@contextmanager
def new_bucket(api: S3Api, root: Path) -> Iterator[Bucket]:
    """A new bucket with its proxy."""
    root.mkdir(exist_ok=True)
    name = f"source-{uuid.uuid4().hex[:12]}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    # Objects have the checksum that a test asks for, and no other.
    config = Config(request_checksum_calculation="when_required")
    client = boto3.client("s3", endpoint_url=api.endpoint, region_name="us-east-1", config=config, **keys)
    client.create_bucket(Bucket=name)
    proxy = Proxy()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy, api.endpoint, name))
    endpoint = f"http://127.0.0.1:{server.server_port}"
    environment = {**os.environ, **api.environment(), "AWS_ENDPOINT_URL": endpoint}
    with server, serving(server):
        yield Bucket(name, client, proxy, root, environment)


def _handler(proxy: Proxy, endpoint: str, bucket: str) -> type[BaseHTTPRequestHandler]:
    upstream = urlsplit(endpoint)

    class Passing(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802
            key = unquote(urlsplit(self.path).path.removeprefix(f"/{bucket}")).removeprefix("/")
            if key:
                proxy.gets.append((key, self.headers.get("Range", "")))
                proxy.before(key)
            else:
                proxy.lists += 1
            self._pass_on(key)

        def do_HEAD(self) -> None:  # noqa: N802
            self._pass_on("")

        def _pass_on(self, key: str) -> None:
            connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            connection.request(self.command, self.path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            if key and answer.status < 300:
                body = proxy.change(key, body)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"connection", "transfer-encoding", "date", "server"}:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            connection.close()

    return Passing
