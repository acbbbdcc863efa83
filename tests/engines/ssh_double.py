"""`ssh` and `rsync` as far as Ray's cluster launcher uses them, over the server of `tests.engines.ssh_hosts`.

It runs where the launcher runs: here, and on the head of the cluster. Its first argument is the socket of the server.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

_RELAY = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


def main(program: str, *arguments: str) -> int:
    """Run one of the two programs; returns its exit status."""
    return _ssh(list(arguments)) if program == "ssh" else _rsync(list(arguments))


def _ssh(arguments: list[str]) -> int:
    forwards, words = [], []
    while arguments:
        word = arguments.pop(0)
        if word == "-L":
            forwards.append(arguments.pop(0))
        elif word in {"-o", "-i"}:
            arguments.pop(0)
        elif not word.startswith("-"):
            words = [word, *arguments]
            break
    host = words[0].rpartition("@")[2]
    for forward in forwards:
        local, _, remote = forward.split(":")
        _forward(host, int(local), remote)
    return _ask({"host": host, "command": ["bash", "-c", " ".join(words[1:])]}, (0, 1, 2))


def _rsync(arguments: list[str]) -> int:
    source, target = arguments[-2:]
    host, _, path = target.partition(":")
    return _ask({"host": host.rpartition("@")[2], "copy": source, "to": path}, (0, 1, 2))


def _forward(host: str, port: int, remote: str) -> None:
    listener = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            streams = (connection.fileno(), connection.fileno(), 2)
            relay = {"host": host, "command": [sys.executable, "-c", _RELAY, remote]}
            threading.Thread(target=_relayed, args=(connection, relay, streams), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _relayed(connection: socket.socket, relay: dict[str, object], streams: tuple[int, int, int]) -> None:
    with connection:
        _ask(relay, streams)


def _ask(request: dict[str, object], streams: tuple[int, int, int]) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        socket.send_fds(server, [json.dumps(request).encode()], streams)
        answer = server.recv(1)
    return answer[0] if answer else 255


if __name__ == "__main__":
    sys.exit(main(*sys.argv[2:]))
