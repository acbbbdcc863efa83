"""Stands in for the Session Manager plugin: forwards the local port of `--parameters` to a server on this machine."""

from __future__ import annotations

import json
import socket
import sys
import threading
from urllib.parse import urlsplit


def copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.close()


def main(server: str, *arguments: str) -> None:
    """Forward connections; `arguments` are those of the AWS CLI."""
    parameters = json.loads(arguments[arguments.index("--parameters") + 1])
    url = urlsplit(server)
    assert (parameters["host"], parameters["portNumber"]) == ([url.hostname], [str(url.port)])
    with socket.create_server(("127.0.0.1", int(parameters["localPortNumber"][0]))) as listener:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((str(url.hostname), url.port or 443))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=copy, args=(source, target), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
