"""What is refused before any stack is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from infra.spec.cluster_names import LONGEST_JOB_NAME
from infra.spec.errors import SettingsError
from tests.platform_charts.jobs.targets import job

WRONG_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"name": "ResNet"}, "name='ResNet'"),
    ({"name": "1st"}, "begin with a letter"),
    ({"name": "a-"}, "end with a letter or digit"),
    ({"name": "a" * (LONGEST_JOB_NAME + 1)}, "at most 47 characters"),
    ({"workers": 0}, "workers=0 must be at least 1"),
    ({"gpus_per_worker": 2}, "gpus_per_worker=2 must be 0 or 1"),
    ({"cpus_per_worker": 0}, "cpus_per_worker=0 must be at least 1"),
    ({"restarts": -1}, "restarts=-1 must be at least 0"),
    ({"keep_days": -1}, "keep_days=-1 must be between 0 and 3650"),
    ({"keep_days": float("nan")}, "keep_days=nan must be"),
    ({"deadline_hours": 0}, "deadline_hours=0 must be at least a second"),
    ({"deadline_hours": float("nan")}, "deadline_hours=nan"),
    ({"start_hours": float("inf")}, "start_hours=inf"),
    ({"run": "My run"}, "run='My run'"),
    ({"kind": "conformance"}, "give the command to run"),
    ({"command": ()}, "command is empty"),
    ({"kind": "session", "name": "session-a"}, "give the command to run"),
    ({"kind": "session", "command": ("true",)}, "name=resnet101 of a session must begin with session-"),
    ({"name": "session-a"}, "name=session-a: only the names of sessions begin with session-"),
]


def test_a_wrong_job_is_refused_by_name_value_and_rule() -> None:
    for changes, message in WRONG_JOBS:
        with pytest.raises(SettingsError) as refusal:
            job(**changes)
        assert message in str(refusal.value)
