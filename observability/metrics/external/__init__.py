"""Metrics of other programs that our rules and dashboards use, one module for each kind of exporter.

A metric is listed only if its name, type and labels were read in the source of the version that the release pins; `Source` says where.
Labels without a bound, such as `uid`, are left out, so that no query can group by them.
"""
