"""Installs charts and objects in the cluster; the only package of platform_charts that imports Pulumi."""
