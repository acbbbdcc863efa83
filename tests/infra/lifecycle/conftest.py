"""A `pulumi` for tests of commands that run it, and an engine that builds images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.account.caller import Caller
from infra.lifecycle.stack.stage import AccountState
from tests.engines.image_builder import ImageBuilder, image_builder

Stack = Callable[..., None]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    with image_builder(tmp_path_factory.mktemp("builder")) as found:
        yield found


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Puts a `pulumi` on PATH that exports a state, and answers changes; it notes its other commands in a file.

    Its arguments: `operations` and `resources` of the state, `says`, the shell command that every change ends with, and
    `init`, why it makes no stack of that name, and `secrets`, the shell command that reads the stack's secrets.
    """
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    caller = Caller("111122223333", "arn:aws:sts::111122223333:assumed-role/platform-admin/test")
    monkeypatch.setattr("infra.lifecycle.preflight.case.caller_of", lambda _session: caller)
    nothing = AccountState(endpoint=None, missing=())
    for module in ("preflight.case", "stack.bring_up"):
        monkeypatch.setattr(f"infra.lifecycle.{module}.read_account", lambda *_: nothing)
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.check", lambda _case: None)
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.notes", lambda _case: ())

    def put(
        *,
        operations: Sequence[dict[str, Any]] = (),
        resources: Sequence[dict[str, Any]] = (),
        says: str = "",
        init: str = "stack already exists",
        secrets: str = "exit 0",
    ) -> None:
        state = {"deployment": {"pending_operations": list(operations), "resources": list(resources)}}
        (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
        program = tmp_path / "pulumi"
        program.write_text(
            f"#!/bin/sh\nif [ \"$1 $2\" = 'stack --cwd' ]; then {secrets}; fi\n"
            f"case $2 in\nexport) cat {tmp_path}/state.json ;;\noutput) echo '{{}}' ;;\n"
            f'init) echo "error: {init}" >&2; exit 255 ;;\n'
            f'import) cp $4 {tmp_path}/imported.json; echo "$1" >> {tmp_path}/ran ;;\n'
            f"--target) echo \"$*\" | sed 's/ --yes.*//; s/ --target//g' >> {tmp_path}/ran; {says or 'exit 0'} ;;\n"
            f"*) echo \"$1\" >> {tmp_path}/ran; echo 'progress'; {says or 'exit 0'} ;;\nesac\n"
        )
        program.chmod(0o755)

    return put


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[], list[str]]:

    def read() -> list[str]:
        file = tmp_path / "ran"
        return file.read_text().splitlines() if file.exists() else []

    return read
