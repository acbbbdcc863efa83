"""The number of workers of an elastic run, as people write it: `{min: 2, max: 8}` or `2-8`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_RANGE: Final = re.compile(r"(?P<min>\d+)-(?P<max>\d+)")
_BOUNDS: Final = {"min", "max"}

JSON_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\d+(-\d+)?$"},
        {
            "type": "object",
            "properties": {name: {"type": "integer", "exclusiveMinimum": 0} for name in sorted(_BOUNDS)},
            "required": sorted(_BOUNDS),
            "additionalProperties": False,
        },
    ]
}
"""What editors accept for `scale.workers`."""


def expand(scale: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section `scale` with a range of workers as the two numbers that the schema has; without one, as it is.

    Raises:
        ValueError: neither a number nor a range; or the range lacks a bound, has another key, or begins at 0.
    """
    workers = scale.get("workers")
    if isinstance(workers, str):
        if match := _RANGE.fullmatch(workers.strip()):
            workers = match.groupdict()
        elif not workers.strip().isdecimal():
            raise ValueError(f"workers={workers} must be a number, or a range such as 2-8")
    if not isinstance(workers, Mapping):
        return scale
    if workers.keys() != _BOUNDS:
        raise ValueError(f"workers={dict(workers)} must be a number, or have min and max: {{min: 2, max: 8}}")
    if str(workers["min"]).strip() == "0":
        raise ValueError(f"workers=0-{workers['max']}: the fewest workers must be 1 or more")
    return {**scale, "workers": workers["max"], "min_workers": workers["min"]}
