"""All environment variables, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.spec.variables.internal import INTERNAL
from infra.spec.variables.libraries import LIBRARIES
from infra.spec.variables.users import USERS
from infra.spec.variables.variable import Variable

INVENTORY: Final[Mapping[str, Variable]] = {
    one.name: one for part in (USERS, INTERNAL, LIBRARIES) for group in part.values() for one in group
}
"""Those that users may set, the platform's own, those of other software."""


def described(*names: str) -> dict[str, str]:
    """What `--help` says about variables, by name.

    Raises:
        KeyError: the inventory lacks one.
    """
    return {name: INVENTORY[name].help() for name in names}
