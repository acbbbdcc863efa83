"""`python -m job_recorder`: watch the jobs of the teams' namespaces, and keep a record of each.

It survives an API server that does not answer, because pods that end meanwhile are seen for a minute only. A restart
continues the records where they are.
"""

from __future__ import annotations

import argparse
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from .bounds import to_text
from .document import Record
from .ledger import Ledger, stamp
from .store import Store
from .watching import KINDS, Listed, Seen, Watch, reason_of

_TICK_SECONDS = 0.5
_EXPIRY_SECONDS = 600.0
_BACKLOG = 20_000


class Recorder:
    """Keeps the records of some namespaces.

    Args:
        api: client of the API server.
        namespaces: of the teams.
        settle: seconds after the end of a job until its record is complete.
        most: complete records that are kept in a namespace; the team's ResourceQuota counts them.
    """

    def __init__(self, api: client.ApiClient, *, namespaces: Sequence[str], settle: float, most: int) -> None:
        self._store = Store(api)
        self._namespaces = namespaces
        self._most = most
        self._ledger = Ledger(node=self._store.node, settle=settle)
        self._seen: queue.Queue[Seen | Listed] = queue.Queue(maxsize=_BACKLOG)
        self._watches = [
            Watch(api, kind, namespace, sink=self._seen.put, say=partial(print, flush=True))
            for kind in KINDS
            for namespace in namespaces
        ]
        self._problems: dict[str, str] = {}

    def start(self) -> None:
        """Read the records back, list everything, and begin to watch.

        Raises:
            ApiException: the API server refuses a list.
            HTTPError: it does not answer.
        """
        for namespace in self._namespaces:
            for one in self._store.stored(namespace):
                if one.record is not None:
                    self._ledger.restore(one.record)
                elif one.expires:
                    self._ledger.ignore(one.uid)
        for watch in self._watches:
            watch.list_all()
            while not self._seen.empty():
                self._take(self._seen.get())
        for watch in self._watches:
            threading.Thread(target=watch.run, daemon=True).start()

    def run(self, stop: threading.Event) -> None:
        """Keep the records until `stop` is set."""
        tidied = -_EXPIRY_SECONDS
        while not stop.is_set():
            self._take_all()
            self._write()
            if time.monotonic() - tidied >= _EXPIRY_SECONDS:
                self._attempt("cannot delete expired records", self._tidy)
                tidied = time.monotonic()
        self._write(is_last=True)

    def _take_all(self) -> None:
        """Fold what has been seen; waits a moment for it."""
        deadline = time.monotonic() + _TICK_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._take(self._seen.get(timeout=left))
            except queue.Empty:
                return

    def _take(self, seen: Seen | Listed) -> None:
        at, clock = time.time(), time.monotonic()
        if isinstance(seen, Listed):
            self._ledger.listed(seen.kind, seen.namespace, seen.uids, at=at, clock=clock)
        else:
            self._ledger.see(seen.kind, seen.found, is_gone=seen.is_gone, at=at, clock=clock)

    def _write(self, *, is_last: bool = False) -> None:
        clock = time.monotonic()
        for record in list(self._ledger.due(float("inf") if is_last else clock)):
            is_written = self._attempt(
                f"{_name(record)}: not written", partial(self._store.write, record, is_complete=False)
            )
            (self._ledger.written if is_written else self._ledger.failed)(record["uid"], clock=clock)
        for record in self._ledger.complete(clock):
            if self._attempt(f"{_name(record)}: not completed", partial(self._store.write, record, is_complete=True)):
                print(to_text(record), flush=True)
                self._ledger.forget(record["uid"])
            else:
                self._ledger.failed(record["uid"], clock=clock)

    def _tidy(self) -> None:
        """Delete expired records, and the oldest of too many."""
        now = stamp(time.time())
        for namespace in self._namespaces:
            complete = sorted(
                (one for one in self._store.stored(namespace) if one.expires), key=lambda one: one.created
            )
            surplus = len(complete) - self._most
            for number, one in enumerate(complete):
                if one.expires < now or number < surplus:
                    self._store.delete(namespace, one.name)

    def _attempt(self, what: str, action: Callable[[], None]) -> bool:
        """Whether a request succeeded; what keeps it from that is printed once."""
        try:
            action()
        except (ApiException, HTTPError, OSError) as error:
            if self._problems.get(what) != (problem := reason_of(error)):
                print(f"{what}: {problem}", flush=True)
            self._problems[what] = problem
            return False
        self._problems.pop(what, None)
        return True


def _name(record: Record) -> str:
    return f"{record['namespace']}/{record['name']}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m job_recorder", description=__doc__)
    made.add_argument(
        "--namespace", action="append", required=True, metavar="NAME", help="namespace of a team; repeatable"
    )
    made.add_argument(
        "--settle", type=float, default=90.0, metavar="S", help="seconds after a job until its record is complete"
    )
    made.add_argument("--most", type=int, default=200, metavar="N", help="complete records to keep in a namespace")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM, and write what is not written yet."""
    options = parser().parse_args(arguments)
    config.load_config()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    recorder = Recorder(client.ApiClient(), namespaces=options.namespace, settle=options.settle, most=options.most)
    recorder.start()
    print(f"recording the jobs of {', '.join(options.namespace)}", flush=True)
    recorder.run(stop)


if __name__ == "__main__":
    main()
