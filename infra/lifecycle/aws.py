"""Names for boto3's objects, which are made at run time from AWS's own descriptions and have no types."""

from __future__ import annotations

from typing import Any

Session = Any
"""A `boto3.Session` with region and credentials."""

Client = Any
"""A client of one AWS service."""
