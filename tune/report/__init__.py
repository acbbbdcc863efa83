"""The report of a search: one self-contained HTML page."""

from tune.report.page import write_report

__all__ = ["write_report"]
