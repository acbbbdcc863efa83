"""Setup of every test session: its own home, no proxy to the network, and the plugins that all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from types import FrameType

import pytest
from botocore.loaders import JSONFileLoader, Loader
from hypothesis import settings

pytest_plugins = (
    "tests.engines.postgres",
    "tests.engines.s3",
    "tests.engines.mlflow_server",
    "tests.engines.mlflow_store",
    "tests.engines.kubernetes",
    "tests.engines.kubernetes_platform",
    "tests.engines.kubernetes_operators",
    "tests.engines.real_nodes",
    "tests.selection",
    "tests.distribution",
    "tests.reporting",
    "tests.costs",
)

# What is made until the tests are collected stays, and the collector would look at it again and again: a quarter of the time.
gc.disable()

# The duration of an example depends on the machine, not on the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# Every session of boto3 would parse the models of its services again.
_models = JSONFileLoader()
_models.load_file = cache(_models.load_file)
Loader.FILE_LOADER_CLASS = staticmethod(lambda: _models)

_stopped = threading.Event()
_stops = [one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]
_home = tempfile.mkdtemp(prefix="home-")

# Before any test module is imported: some libraries read these once.
os.environ.update(
    {
        "HOME": _home,
        "RAY_AUTH_MODE": "disabled",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "OMP_NUM_THREADS": "1",
    }
)
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)
# The options and variables of a make that runs these tests are not for one that a test runs.
for _name in [name for name in os.environ if name.startswith(("MAKE", "MFLAGS"))]:
    del os.environ[_name]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of tests that take too long for every run."""
    parser.addoption("--on-nodes", action="store_true", help="run jobs on real nodes of a sandbox: make test-cluster")
    parser.addoption("--sandbox", metavar="FOLDER", help="with --on-nodes, a sandbox that runs; default: a new one")


def pytest_configure() -> None:
    """Let tests put away what they made when a person stops the session, by whichever signal and however often."""
    for number in _stops:
        signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _stops)  # `tests.__main__` has blocked them


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in _stops:
        signal.signal(number, _ignore)
    _stopped.set()
    raise KeyboardInterrupt


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN: Python complains of a signal that comes while its handler is taken away, and children would inherit it."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport() -> None:
    """End the session after the test that was stopped: code under test may have taken the interrupt for its own."""
    if _stopped.is_set():
        raise KeyboardInterrupt


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let the collector look at what tests make, and at nothing older; also in the process that only distributes the tests."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let the collector look at everything again: some extension modules report what is left at the end of the process."""
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home; end a process that has reported all of its tests at once, without freeing its 2 GB for half a minute."""
    shutil.rmtree(_home, ignore_errors=True)
    if hasattr(config, "workerinput"):
        os._exit(0)


@pytest.fixture
def hangups() -> Iterator[None]:
    """Tests of SIGHUP: it arrives as in a terminal, also where the suite runs under nohup."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
