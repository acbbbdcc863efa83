"""Names for boto3's objects, which boto3 generates at run time, without types."""

from __future__ import annotations

from typing import Any

Session = Any
"""A `boto3.Session` with region and credentials."""

Client = Any
"""A client of one AWS service."""
