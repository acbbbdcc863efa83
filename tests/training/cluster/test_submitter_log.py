"""The driver's lines in the log of the submitter's pod; the texts are those of Ray 2.60 on a real cluster."""

from __future__ import annotations

from pathlib import Path

import ray

from training.cluster.submitter_log import SubmitterLog

_BEFORE = (
    "2026-11-27 22:47:07,216\tINFO cli.py:42 -- \x1b[37mJob submission server address\x1b[39m: \x1b[1mhttp://rolled:8265\x1b[22m",
    "2026-11-27 22:47:07,382\tSUCC cli.py:67 -- \x1b[32mJob 'rolled-wtng7' submitted successfully\x1b[39m",
    "2026-11-27 22:47:07,382\tINFO cli.py:341 -- \x1b[1mray job stop rolled-wtng7\x1b[22m",
)
_DRIVER = (
    "2026-11-27 22:47:07,283\tINFO job_manager.py:581 -- Runtime env is setting up.",
    "run rolled: simple_cnn on digits, 2 CPU workers (ray), global batch 64",
    "Traceback (most recent call last):",
    '  File "/mnt/code/train.py", line 3, in <module>',
    "ValueError: Status message: the user's own",
)
_CLOSED = "2026-11-27 22:47:48,003\tINFO sdk.py:520 -- WebSocket closed for job rolled-wtng7 with close code 1000"
_LAST = "cost $0.0021, 22.8 % of it productive"
_SUCCEEDED = ("2026-11-27 22:47:48,284\tSUCC cli.py:67 -- \x1b[32mJob 'rolled-wtng7' succeeded\x1b[39m",)
_FAILED = (
    "2026-11-27 22:47:48,284\tERR cli.py:75 -- \x1b[31mJob 'rolled-wtng7' failed\x1b[39m",
    "Status message: Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):",
    "run rolled: simple_cnn on digits, 2 CPU workers (ray), global batch 64",
)
_HEAD_GONE = (
    "Traceback (most recent call last):",
    '  File "/opt/.venv/lib/python3.11/site-packages/urllib3/connection.py", line 239, in _new_conn',
    "socket.gaierror: [Errno -2] Name or service not known",
    "",
    "The above exception was the direct cause of the following exception:",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='rolled-x2w7g-head-svc.research.svc.cluster.local', port=8265)",
)
_NO_DRIVER = "2026-11-27 22:47:48,284\tERR cli.py:304 -- the job could not be submitted"


def _shown(*lines: str) -> list[str]:
    log = SubmitterLog()
    return [line for line in lines if log.is_shown(line)]


def test_only_a_driver_s_lines_are_shown_also_those_that_look_like_ray_s() -> None:
    assert _shown(*_BEFORE, *_DRIVER) == [*_DRIVER]
    for end in (_SUCCEEDED, _FAILED, _HEAD_GONE):
        assert _shown(*_BEFORE, *_DRIVER, _CLOSED, *end) == [*_DRIVER]
    assert _shown(_CLOSED, _LAST, *_HEAD_GONE) == [_LAST], "a last line may come after the end"
    assert _shown(_BEFORE[0], _NO_DRIVER, *_HEAD_GONE) == [_NO_DRIVER, *_HEAD_GONE], "the reason of no driver"


def test_ray_says_so() -> None:
    """An update of Ray that changes its texts would show them again."""
    package = Path(ray.__file__).parent / "dashboard" / "modules" / "job"
    client = (package / "sdk.py").read_text(encoding="utf-8")
    assert 'f"WebSocket closed for job {job_id} with' in client
    assert 'f"WebSocket error for job {job_id}' in client
    assert 'print(f"Status message: {info.message}"' in (package / "cli.py").read_text(encoding="utf-8")
