"""Types of values that several sections have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.spec.matching import Matching

OptionValue = bool | int | float | str | list[int] | list[float] | list[str] | None
"""Values of a model's or dataset's own options."""

Fraction = Annotated[float, Field(ge=0, lt=1)]

Timeout = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
"""Seconds, at most a week: torch cannot hold any number of them."""

S3Folder = Annotated[
    str, Matching(r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$", "must be s3://BUCKET or s3://BUCKET/FOLDER")
]
