"""JupyterLab in the head of a session, bound to its loopback interface.

    python -m training.interactive.notebook FOLDER

starts it unless it runs, and prints its port and token as JSON to whoever asked; nothing else ever prints the token.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from infra.spec.errors import PlatformError
from training.interactive.idle import Activity

STATE = Path(tempfile.gettempdir(), "notebook-server")
"""Token, log and settings of the server, in the head's own container; only its user reads it."""

_PORT = 8888
_START_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1

_OPTIONS = (
    "--no-browser",
    "--ip=127.0.0.1",
    f"--port={_PORT}",
    "--ServerApp.port_retries=50",
    "--log-level=WARN",
    # Who it runs as is the pod's business: Pod Security `restricted` refuses root.
    "--allow-root",
    "--LabApp.extension_manager=readonly",
    # It would ask the package index for newer versions and for news, which the network policies deny.
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running JupyterLab.

    Attributes:
        port: on the loopback interface.
        token: what a browser has to present.
        pid: of its process.
        folder: its root folder.
    """

    port: int
    token: str
    pid: int
    folder: str

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """An answer of its API, e.g. to `status`.

        Raises:
            OSError: it does not answer.
        """
        request = Request(f"http://127.0.0.1:{self.port}/api/{path}", headers={"Authorization": f"token {self.token}"})
        try:
            with urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
                return json.load(answer)
        except (HTTPException, ValueError) as error:
            raise OSError(str(error)) from error


def ensure(folder: Path, *, state: Path = STATE, seconds: float = _START_SECONDS) -> Server:
    """JupyterLab on a folder; starts it unless it runs.

    Args:
        folder: root folder of the file browser; created if it does not exist.
        state: folder for the server's token, log and settings.
        seconds: how long it may take to start.

    Raises:
        PlatformError: it is not installed, or does not start; carries the end of its log.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(state):
        found = running(state)
        if found is not None:
            return found
        return _start(folder, state, seconds)


def running(state: Path = STATE) -> Server | None:
    """The server that answers, or None."""
    found = _saved(state)
    with suppress(OSError):
        if found is not None:
            found.get("status")
            return found
    return None


def activity(state: Path = STATE, *, now: float | None = None) -> Activity:
    """What somebody does in the notebooks: kernels that compute, else the time since a cell was run or a notebook was saved.

    An open browser tab is no use: JupyterLab polls its server for ever.

    Args:
        state: folder of the server.
        now: the time, in seconds since 1970.
    """
    server = _saved(state)
    if server is None:
        return Activity()
    try:
        sessions = server.get("sessions")
    except OSError:
        return Activity()
    last = []
    for session in sessions:
        kernel = session["kernel"]
        if kernel["execution_state"] == "busy":
            return Activity(running=f"notebook {session['path']}")
        last.append(datetime.fromisoformat(kernel["last_activity"]).timestamp())
        with suppress(OSError):
            last.append(Path(server.folder, session["path"]).stat().st_mtime)
    return Activity(age=max(0.0, (now or time.time()) - max(last)) if last else None)


def _start(folder: Path, state: Path, seconds: float) -> Server:
    token, log = secrets.token_hex(24), state / "jupyter.log"
    runtime = state / "runtime"
    with log.open("ab") as opened:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *_OPTIONS, f"--ServerApp.root_dir={folder}"],
            cwd=folder,
            env=_environment(folder, token=token, runtime=runtime),
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
            start_new_session=True,  # it outlives the command that asked for it
        )
    info = runtime / f"jpserver-{process.pid}.json"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError, ValueError, KeyError):
            port = json.loads(info.read_text(encoding="utf-8"))["port"]
            server = Server(port=port, token=token, pid=process.pid, folder=str(folder))
            server.get("status")
            _save(server, state / "server.json")
            return server
        time.sleep(_POLL_SECONDS)
    process.kill()
    said = " ".join(log.read_text(errors="replace").split())[-500:]
    raise PlatformError(f"JupyterLab did not start: {said}", remedy=f"its log is {log}")


def _environment(folder: Path, *, token: str, runtime: Path) -> Mapping[str, str]:
    """The token goes through the environment, because every user of the machine reads command lines."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        paths.append(str(folder))
    return {
        **os.environ,
        "JUPYTER_TOKEN": token,
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _saved(state: Path) -> Server | None:
    with suppress(OSError, ValueError, TypeError):
        return Server(**json.loads((state / "server.json").read_text(encoding="utf-8")))
    return None


def _save(server: Server, file: Path) -> None:
    written = file.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_text(json.dumps(asdict(server)), encoding="utf-8")
    written.replace(file)


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Two commands at the same time start one server."""
    with (state / "lock").open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Print port and token of the server."""
    try:
        server = ensure(Path(sys.argv[1]))
    except PlatformError as error:
        print(error, file=sys.stderr)
        return error.status
    print(json.dumps({"port": server.port, "token": server.token}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
