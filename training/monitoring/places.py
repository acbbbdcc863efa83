"""Where the files of local monitoring are."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(".local") / "monitoring"
"""Data, configuration and logs; the data stays from one start to the next."""

URL_FILE = FOLDER / "prometheus.url"
"""Present while Prometheus serves: its address."""
