"""Environment variables that the settings give to every rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, StrictFloat, StrictInt, StrictStr

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_WORDS: Final = {"CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}
_REFUSED: Final = {
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|RAY_.*|CUDA_VISIBLE_DEVICES": "is the launcher's to set",
    r"LD_.*|PYTHON.*|MALLOC_.*|GLIBC_TUNABLES": "takes effect only if it is set before a process starts; export it before the command",
}
"""Patterns of names that are refused, with the reason."""


def _check(variables: Mapping[str, str | int | float]) -> Mapping[str, str | int | float]:
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of an environment variable: letters, digits and underscores")
        if not _SECRET_WORDS.isdisjoint(name.upper().split("_")):
            raise ValueError(
                f"{name} looks like a secret, and settings are recorded in checkpoints and in MLflow; export it before the command"
            )
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"{name} has a null character, which no environment variable may have")
        for pattern, reason in _REFUSED.items():
            if re.fullmatch(pattern, name):
                raise ValueError(f"{name} {reason}")
    return variables


Variables = Annotated[dict[str, StrictStr | StrictInt | StrictFloat], AfterValidator(_check)]
"""Environment variables by name. Numbers are as they are written; true and false have no one spelling and need quotes."""
