"""Settings of an environment: `load("dev")`, or `from_mapping(...)` for what Pulumi has read already."""

from infra.spec.settings.loading import check_account, environment_names, from_mapping, load, render_test_environment
from infra.spec.settings.stack import StackSettings

__all__ = [
    "StackSettings",
    "check_account",
    "environment_names",
    "from_mapping",
    "load",
    "render_test_environment",
]
