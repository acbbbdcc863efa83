"""A disk that fills up during a search: it ends with a remedy, and continues once there is space."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distribution import RAY
from tests.engines.small_disk import small_disk
from tests.tune.search_driver import SearchDriver, assert_counted_once, search_of
from training.errors import ExitStatus
from tune.events import TrialReported

pytestmark = pytest.mark.xdist_group(RAY)


def fill(path: Path) -> None:
    """Take all the space there is."""
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.long
def test_a_full_disk_ends_a_search_with_a_remedy_and_it_continues(tmp_path: Path) -> None:
    settings = search_of(
        space={"optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]}},
        epochs=40,
        shared={"checkpoint": {"every_steps": 5}},
        algorithm="random",
        trials=2,
        concurrency=1,
    )
    with small_disk(tmp_path / "disk", size="300m") as disk:  # slightly more than a search needs to start
        root = disk / "searches"
        with SearchDriver(root, settings) as driver:
            assert driver.wait_for(lambda event: isinstance(event, TrialReported))
            fill(disk / "ballast")
            ended = driver.end()
            driver.wait_for_descendants()
        assert ended.status == ExitStatus.FAILED, ended.out + ended.err
        assert "No space left on device" in ended.err
        assert f"remedy: free disk space; make tune NAME={root / 's'} continues the search" in ended.err
        assert "Traceback" not in ended.err
        assert "Traceback" not in (root / "s" / "search.jsonl").read_text()
        (disk / "ballast").unlink()
        with SearchDriver(root, settings) as driver:
            ended = driver.end()
            driver.wait_for_descendants()
        assert ended.status == ExitStatus.DONE, ended.out + ended.err
        assert_counted_once(root / "s", trials=2)
