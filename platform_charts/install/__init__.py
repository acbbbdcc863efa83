"""Pulumi resources for charts and objects; the only package of platform_charts that imports Pulumi."""
