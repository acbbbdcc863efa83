"""The reason of a failed request is the cause, not the objects of the HTTP client."""

from __future__ import annotations

import pytest
import urllib3

from infra.spec.errors import reason_of
from tests.engines.ports import free_port


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_refused_connection_is_told_without_the_clients_objects(scheme: str) -> None:
    pool = urllib3.PoolManager(retries=urllib3.Retry(0))
    with pytest.raises(urllib3.exceptions.HTTPError) as caught:
        pool.request("GET", f"{scheme}://127.0.0.1:{free_port()}/index.yaml")
    assert reason_of(caught.value) == "Failed to establish a new connection: [Errno 111] Connection refused"


def test_another_error_is_told_in_one_line() -> None:
    assert reason_of(OSError("it broke\n  here")) == "it broke here"
