"""`python -m observability.metrics.dcgm_counters`: write the list of what DCGM exporter exports, from the inventory of what is used.

Its own default leaves out what alerts need (ECC, throttling, NVLink errors, the count of XIDs) and has the last XID as a gauge that is
never reset. The file is committed, because the stack imports nothing of `observability`; a test compares it with the inventory.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from observability.metrics.external.gpu import GPU_METRICS

FILE = Path(__file__).parents[2] / "platform_charts" / "charts" / "dcgm-counters.csv"

_HEADER = (
    "# Written by `python -m observability.metrics.dcgm_counters` from observability/metrics/external/gpu.py; do not edit.\n"
    "# DCGM field, Prometheus metric type, help.\n"
)


def counters_file() -> str:
    """The exporter's list: one field a line, sorted by name."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for metric in sorted(GPU_METRICS, key=lambda metric: metric.name):
        unit = metric.unit.replace("_", " ")
        text_and_unit = metric.help if unit in metric.help.lower() else f"{metric.help.removesuffix('.')}, in {unit}."
        lines.writerow([metric.name, metric.kind, text_and_unit])
    return _HEADER + text.getvalue()


if __name__ == "__main__":
    FILE.write_text(counters_file(), encoding="utf-8")
    print(f"wrote {FILE}")
