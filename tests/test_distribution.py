"""The distribution of tests among processes, on a small generated suite."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.modules import cache_root
from tests.small_suite import Suite

_PLAIN = "import pytest\n@pytest.mark.parametrize('one', range(3))\ndef test_it(one): pass\n"
_WITH_S3 = "import pytest\n@pytest.mark.parametrize('one', range(3))\ndef test_it(s3_api, one): pass\n"
_WITH_KUBERNETES = "def test_it(control_plane): pass\n"
_WITH_PROMETHEUS = "import pytest\n@pytest.mark.monitoring\ndef test_it(control_plane): pass\n"


def test_tests_of_one_file_or_one_server_run_in_one_process(tmp_path: Path) -> None:
    suite = Suite(tmp_path, a=_WITH_S3, b=_WITH_S3, c=_PLAIN, d=_PLAIN)
    printed = suite.run()
    where = suite.processes()
    assert all(len(processes) == 1 for processes in where.values())
    assert where["a"] == where["b"]
    assert set.union(*where.values()) == {"gw0", "gw1"}
    assert [line.split()[-1] for line in printed.splitlines() if line.startswith("S3 API")] == ["ran"]


@pytest.mark.parametrize("chosen", [["suite/test_a.py", "suite/test_b.py"], ["-k", "test_it"]])
def test_selected_tests_run_in_one_process(tmp_path: Path, chosen: list[str]) -> None:
    suite = Suite(tmp_path, a=_PLAIN, b=_PLAIN)
    suite.run(*chosen)
    assert suite.processes() == {"a": {"here"}, "b": {"here"}}


@pytest.mark.parametrize("waiting", [_WITH_KUBERNETES, _WITH_PROMETHEUS])
def test_tests_that_need_what_is_built_wait_for_it_while_others_run(tmp_path: Path, waiting: str) -> None:
    suite = Suite(tmp_path, a=waiting, b=_PLAIN)
    lock = cache_root(suite.engines) / "lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = suite.start()
        while "b" not in suite.processes():
            assert running.poll() is None, running.communicate()[0]
            time.sleep(0.01)
        assert "a" not in suite.processes()
    printed, _ = running.communicate(timeout=120)
    assert running.returncode == 0, printed
    assert "make engines is running: the tests that need Kubernetes or Prometheus wait for it" in printed
    assert "a" in suite.processes()


_LONG = "import pytest\n@pytest.mark.long\n@pytest.mark.parametrize('one', range(2))\ndef test_it(one): pass\n"


@pytest.mark.parametrize(
    ("share", "passed"),
    [
        ([], 3),
        (["--long", "0"], 3),
        (["--long", "1"], 9),
        (["--long", "1/2"], 7),
        (["--long", "2/2"], 5),
        (["suite/test_long.py"], 2),
        (["-k", "test_it"], 9),
        (["suite/test_long.py", "suite/test_later.py", "--long", "2/2"], 2),
    ],
)
def test_the_whole_suite_has_the_share_of_the_long_tests_and_chosen_tests_have_all(
    tmp_path: Path, share: list[str], passed: int
) -> None:
    printed = Suite(tmp_path, a=_PLAIN, later=_LONG, long=_LONG, longest=_LONG).run(*share)
    assert f" {passed} passed" in printed


@pytest.mark.parametrize(("share", "passed"), [("1/2", 6), ("2/2", 4)])
def test_long_tests_that_stand_apart_are_in_different_shares(tmp_path: Path, share: str, passed: int) -> None:
    apart = _LONG.replace("mark.long", "mark.long(apart=True)")
    printed = Suite(tmp_path, a=_PLAIN, apart=apart, long=_LONG).run("--long", share)
    assert f" {passed} passed" in printed


@pytest.mark.parametrize("share", ["2", "0/3", "4/3", "1/0", "half", "-1"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    suite = Suite(tmp_path, a=_PLAIN)
    refused = suite.start(f"--long={share}")
    printed, _ = refused.communicate(timeout=60)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"'{share}' is no share of the long tests; give 0, 1 or K/N, such as 2/4" in printed
    assert suite.processes() == {}
