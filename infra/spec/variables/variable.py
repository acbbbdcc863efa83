"""One environment variable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable.

    Attributes:
        name: its name.
        meaning: what it does, as a phrase without a full stop.
        value: the default of a variable that a user may set; the value of one that the platform sets. In words in parentheses
            if it is not a text; empty if there is none.
        used_by: the packages, and files that are not Python, that read or set it; empty if only a library reads it.
        library: whose variable it is; empty for the platform's own.
        is_kept: of a variable that the platform sets for a library: whether a value that is there already is kept.
    """

    name: str
    meaning: str
    value: str = ""
    used_by: tuple[str, ...] = ()
    library: str = ""
    is_kept: bool = False

    def help(self) -> str:
        """What `--help` says about it."""
        return f"{self.meaning}; default: {self.value.strip('()')}" if self.value else self.meaning
