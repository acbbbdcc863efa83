"""Look up Python packages through pip, and files on plain web servers."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple, Protocol

import urllib3

from infra.lifecycle.release.registries import not_answered
from infra.spec.errors import NoAnswerError, reason_of

_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


class RemoteFile(NamedTuple):
    """What a web server says about a file without sending it."""

    size: str
    etag: str


class PackageSource(Protocol):
    """Looks up Python packages."""

    def versions(self, name: str) -> tuple[str, ...]:
        """Every version of a package, in no order."""
        ...


class FileSource(Protocol):
    """Looks up files by URL."""

    def file(self, url: str) -> RemoteFile:
        """The file at a URL."""
        ...


class Pip:
    """Asks the package index that pip is configured for; lists what this Python can install.

    Args:
        timeout_s: time limit of a look-up in seconds.
    """

    def __init__(self, *, timeout_s: float = 120) -> None:
        self._timeout_s = timeout_s

    def versions(self, name: str) -> tuple[str, ...]:
        """See `PackageSource.versions`."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", name]
        try:
            answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=self._timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"pip index versions {name}: no answer in {self._timeout_s:g} s") from error
        found = _VERSIONS.search(answer.stdout)
        if found is not None:
            return tuple(found[1].split(", "))
        last = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        # pip says the same of a package that the index lacks and of an index that it cannot reach.
        raise NoAnswerError(f"pip index versions {name}: {last}")


class Web:
    """HTTP client for files.

    Args:
        timeout_s: timeout of a request in seconds; each request is tried three times.
    """

    def __init__(self, *, timeout_s: float = 20) -> None:
        self._pool = urllib3.PoolManager(timeout=timeout_s, retries=urllib3.Retry(2, backoff_factor=0.5))

    def file(self, url: str) -> RemoteFile:
        """See `FileSource.file`."""
        try:
            response = self._pool.request("HEAD", url)
        except urllib3.exceptions.HTTPError as error:
            raise NoAnswerError(f"{url}: {reason_of(error)}") from error
        if response.status != 200:
            raise not_answered(url, response.status)
        return RemoteFile(response.headers.get("Content-Length", ""), response.headers.get("ETag", ""))
