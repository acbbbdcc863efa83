"""What a stack that does not exist is answered with, by a `pulumi` that prints Pulumi's message."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec.stack_outputs import NoStackError, outputs_of_stack


@pytest.fixture(autouse=True)
def no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pulumi"
    program.write_text("#!/bin/sh\necho \"error: no stack named 'x' found\" >&2; exit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_only_the_stack_of_a_known_environment_is_to_be_brought_up() -> None:
    for environment, remedy in (
        ("dev", "bring it up: `make up ENV=dev`"),
        ("def", "check the name: no file here has an environment def (did you mean dev?)"),
        ("lab", "check the name: no file here has an environment lab (one of dev, prod, staging)"),
    ):
        with pytest.raises(NoStackError, match="pulumi stack output: error: no stack named") as refused:
            outputs_of_stack(environment)
        assert refused.value.remedy == remedy, environment
