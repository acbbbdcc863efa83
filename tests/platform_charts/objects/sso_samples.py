"""The sample environments with single sign-on."""

from __future__ import annotations

from typing import Any

from infra.spec.settings import StackSettings
from infra.spec.settings.single_sign_on import SingleSignOnSettings
from tests.infra.aws.graphs import settings_of
from tests.infra.spec.samples import SINGLE_SIGN_ON

SECTION: dict[str, Any] = {
    **SINGLE_SIGN_ON,
    "groups": {"research": ["ml-research", "ml-leads"], "platform": ["ml-platform", "ml-leads"]},
}
"""The section for `dev`, with both of its teams."""


def with_single_sign_on(**changes: object) -> StackSettings:
    """`dev` with single sign-on, some settings of the section changed."""
    section = SingleSignOnSettings.model_validate({**SECTION, **changes})
    return settings_of("dev").model_copy(update={"single_sign_on": section})


def open_to_teams() -> StackSettings:
    """`dev` with a Grafana that members of teams may look at."""
    dev = settings_of("dev")
    monitoring = dev.monitoring.model_copy(update={"open_to_teams": True})
    return dev.model_copy(update={"monitoring": monitoring})
