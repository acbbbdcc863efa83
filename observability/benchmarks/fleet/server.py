"""The server of all targets: one process, whose pages are joined from prepared text."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from infra.spec.errors import PlatformError
from observability.benchmarks.fleet.exporters import scrapes
from observability.benchmarks.fleet.page import Page
from observability.benchmarks.fleet.scrapes import Scrape
from observability.benchmarks.fleet.shape import Fleet
from observability.benchmarks.fleet.values import Values
from training.local_server import HOST

_START_SECONDS = 600.0
"""Ten thousand nodes on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A scrape configuration whose targets are served.

    Attributes:
        file: with its targets, for Prometheus's `file_sd_configs`.
        targets: number of them.
        series: that they export together.
    """

    name: str
    seconds: int
    honor_labels: bool
    file: Path
    targets: int
    series: int


@dataclass(frozen=True, kw_only=True)
class Exporters:
    """A running server.

    Attributes:
        pid: of its process.
        served: what it serves.
    """

    pid: int
    served: Sequence[Served]


@contextmanager
def serving(fleet: Fleet, folder: Path) -> Iterator[Exporters]:
    """Serve the exporters of a fleet from a process of its own, with the files of targets in `folder`.

    Raises:
        PlatformError: the process did not start.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(fleet, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_START_SECONDS):
            raise PlatformError(f"the simulated exporters did not start within {_START_SECONDS:.0f} s")
        try:
            served: Sequence[Served] = ours.recv()
        except EOFError as error:
            raise PlatformError("the simulated exporters ended at their start; their error is above") from error
        assert process.pid is not None  # it has started
        yield Exporters(pid=process.pid, served=served)
    finally:
        process.terminate()
        process.join()


def _serve(fleet: Fleet, folder: Path, ready: Connection) -> None:
    """Serve until the process is ended."""
    _, largest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (largest, largest))
    values = Values()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(scrapes(fleet, values), values, folder, ready))


async def _run(found: Sequence[Scrape], values: Values, folder: Path, ready: Connection) -> None:
    pages = {
        f"/{place}/{number}".encode(): target.page
        for place, scrape in enumerate(found)
        for number, target in enumerate(scrape.targets)
    }
    server = await asyncio.start_server(_Answers(pages, values).answer, HOST, 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    ready.send([_write(scrape, place, folder, port=port) for place, scrape in enumerate(found)])
    await server.serve_forever()


def _write(scrape: Scrape, place: int, folder: Path, *, port: int) -> Served:
    file = folder / f"targets-{place}.json"
    groups = [
        {"targets": [f"{HOST}:{port}"], "labels": {**target.labels, "__metrics_path__": f"/{place}/{number}"}}
        for number, target in enumerate(scrape.targets)
    ]
    file.write_text(json.dumps(groups), encoding="utf-8")
    return Served(
        name=scrape.name,
        seconds=scrape.seconds,
        honor_labels=scrape.honor_labels,
        file=file,
        targets=len(groups),
        series=scrape.series,
    )


class _Answers:
    """Just enough of HTTP/1.1 for Prometheus's scrapes, which keep their connections and accept gzip."""

    def __init__(self, pages: Mapping[bytes, Page], values: Values) -> None:
        self._pages = pages
        self._values = values

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection until it ends."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer_to(head.split(b" ", 2)[1]))
                await writer.drain()
        writer.close()

    def _answer_to(self, path: bytes) -> bytes:
        page = self._pages.get(path)
        if page is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        self._values.advance()
        body = page.body()
        return (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
