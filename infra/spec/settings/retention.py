"""Retention of CloudWatch logs: CloudWatch accepts certain numbers of days only."""

from __future__ import annotations

from typing import Literal

LogDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]
"""Allowed values of retentionInDays (CloudWatch Logs API reference, PutRetentionPolicy)."""
