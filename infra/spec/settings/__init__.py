"""Settings of an environment: `load_environment("dev")`, or `from_mapping(...)` for plain data."""

from infra.spec.settings.loading import (
    check_account,
    environment_names,
    from_mapping,
    load_environment,
    render_test_environment,
)
from infra.spec.settings.stack import StackSettings

__all__ = [
    "StackSettings",
    "check_account",
    "environment_names",
    "from_mapping",
    "load_environment",
    "render_test_environment",
]
