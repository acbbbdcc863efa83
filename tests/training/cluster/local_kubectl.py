"""A kubectl whose pods are this machine, because no kubelet runs containers here: `exec` runs the program, `port-forward` forwards.

$KUBECTL_PYTHON    the pods' Python
$KUBECTL_CODE      the folder that is /mnt/code in the pods
$KUBECTL_FORWARDS  folder with a file, named like its process ID, for each forward that runs
$KUBECTL_CUT       file that cuts forwards: they stay, and pass nothing on
$KUBECTL_PORT_n    the port of this machine that is port n of the pods, if it is another
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path


def variables(folder: Path, *, code: Path) -> dict[str, str]:
    """Variables of a command that finds this program as kubectl, which it writes to a folder; `code` is /mnt/code in the pods."""
    for name in ("bin", "forwards"):
        (folder / name).mkdir()
    program = folder / "bin" / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "KUBECTL_PYTHON": sys.executable,
        "KUBECTL_CODE": str(code),
        "KUBECTL_FORWARDS": str(folder / "forwards"),
        "KUBECTL_CUT": str(folder / "cut"),
    }


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith(("--kubeconfig=", "--namespace="))]
    if words[0] == "exec":
        program = words[words.index("--") + 1 :]
        program = [word.replace("/mnt/code", os.environ["KUBECTL_CODE"]) for word in program]
        if program[0] == "python":
            program[0] = os.environ["KUBECTL_PYTHON"]
        os.execvp(program[0], program)  # noqa: S606
    local, remote = words[-1].split(":")
    Path(os.environ["KUBECTL_FORWARDS"], str(os.getpid())).touch()
    forward(int(local), int(os.environ.get(f"KUBECTL_PORT_{remote}", remote)))


def forward(local: int, remote: int) -> None:
    """Pass connections on until the process is killed."""
    with socket.create_server(("127.0.0.1", local)) as server:
        while True:
            client, _ = server.accept()
            if Path(os.environ["KUBECTL_CUT"]).exists():
                client.close()
                continue
            target = socket.create_connection(("127.0.0.1", remote))
            for source, sink in ((client, target), (target, client)):
                threading.Thread(target=copy, args=(source, sink), daemon=True).start()


def copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
