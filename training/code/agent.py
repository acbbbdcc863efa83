"""Serves a code folder over standard input and output until the other side closes the pipe.

    python -m training.code.agent FOLDER

It runs in the head of a session; `training.code.remote` is its client. Whoever can start it can open a shell there too.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import BinaryIO

from infra.spec.errors import PlatformError
from training.code.folder import ChangedError, Content, LocalFolder
from training.code.frames import Message, receive
from training.code.selection import select


class _Stream:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def line(self) -> bytes:
        return self._stream.readline()

    def exactly(self, count: int) -> bytes:
        return self._stream.read(count)


def serve(root: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more.

    Args:
        root: the folder; created if it does not exist.
        requests: messages with the operation `list`, `read`, `write` or `delete`.
        answers: one message for each.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = LocalFolder(root, select=partial(select, is_copy=True))
    reader = _Stream(requests)
    while (request := receive(reader)) is not None:
        try:
            answer = _answer(folder, request)
        except PlatformError as error:
            kind = "changed" if isinstance(error, ChangedError) else "error"
            answer = Message(fields={kind: str(error)})
        answers.write(answer.encode())
        answers.flush()


def _answer(folder: LocalFolder, request: Message) -> Message:
    fields = request.fields
    if fields["operation"] == "list":
        found = folder.listing()
        return Message(
            fields={
                "hashes": found.hashes,
                "files": dict(found.selection.files),
                "left_out": dict(found.selection.left_out),
            }
        )
    path = str(fields["path"])
    if fields["operation"] == "read":
        read = folder.read(path)
        return Message(fields={"sha256": read.sha256, "is_executable": read.is_executable}, data=read.data)
    if fields["operation"] == "write":
        content = Content(data=request.data, is_executable=bool(fields["is_executable"]))
        if content.sha256 != fields["sha256"]:
            raise PlatformError(f"{path} arrived with sha256 {content.sha256}, {fields['sha256']} was sent")
        folder.write(path, content, replaces=fields["replaces"])
    elif fields["operation"] == "delete":
        folder.delete(path, sha256=str(fields["sha256"]))
    else:
        raise PlatformError(f"unknown operation {fields['operation']!r}")
    return Message()


if __name__ == "__main__":
    os.umask(0o022)
    serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
