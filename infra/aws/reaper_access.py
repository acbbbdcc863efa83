"""What the reaper's pods may do in the account."""

from __future__ import annotations

from infra.aws.iam import Statement
from infra.spec.names import KIND_TAG
from infra.spec.protection import EnvironmentKind
from infra.spec.reaper_actions import reaper_actions


def reap() -> tuple[Statement, ...]:
    """List and delete what a test cluster has left, and nothing that a tag says is of another kind of environment.

    Half of what is left has no tags, so no condition requires one. Actions that know no condition on tags are not limited:
    `StringNotEquals` holds where the key is absent (IAM user guide, "String condition operators").
    """
    others = [kind.value for kind in EnvironmentKind if kind is not EnvironmentKind.TEST]
    condition = {"StringNotEquals": {f"aws:ResourceTag/{KIND_TAG}": others}}
    return (Statement(sid="Reap", actions=reaper_actions(), resources=("*",), condition=condition),)
