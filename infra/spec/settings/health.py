"""Health of GPU nodes: what is checked before a node takes jobs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.spec.section import Section

Diagnostics = Literal["none", "quick", "medium"]


class GpuHealthSettings(Section):
    """Checks of GPU nodes. The conditions of EKS's node monitoring agent are watched in every case."""

    diagnostics: Diagnostics = Field(
        "none",
        description="DCGM diagnostics that a node passes before its first job: "
        "quick: level 1, seconds; medium: level 2, about two minutes; none.",
    )
