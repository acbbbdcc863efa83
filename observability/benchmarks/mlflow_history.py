"""What a long run costs MLflow's database, with all of its points and thinned: `python -m observability.benchmarks.mlflow_history URL`.

URL is an empty PostgreSQL database, `postgresql+psycopg2://USER@HOST:PORT/NAME`. Both runs have the same synthetic steps. The thinned
points go through MLflow's server; all of them would take hours that way, so they are copied into its table.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import psycopg2

from observability.benchmarks import options
from observability.benchmarks.measure import describe_machine
from training.config.schema import TrackingSettings
from training.tracking.client import mlflow, upload_timeout
from training.tracking.delivery import MAX_METRICS
from training.tracking.point import Point
from training.tracking.thinning import Series, Thinner

METRICS = 11
"""Metrics of a step of a classifier."""

UI_POINTS = 320
"""Points that MLflow's UI asks for in a chart."""

_SPIKE_EVERY = 9973
_QUERIES = 15
_CHUNK = 200_000
_START_SECONDS = 300.0


def main() -> int:
    """Measure, and print a table."""
    arguments = options.mlflow_history().parse_args()
    steps = arguments.points // METRICS
    with TemporaryDirectory(prefix="rtp-bench-") as folder, _server(arguments.url, Path(folder)) as uri:
        client = mlflow.MlflowClient(uri)
        experiment = client.create_experiment("benchmark")
        runs = {name: str(client.create_run(experiment).info.run_id) for name in ("thinned", "all points")}
        with closing(psycopg2.connect(arguments.url.replace("+psycopg2", ""))) as connection:
            connection.autocommit = True
            results = {"thinned": _fill(connection, lambda: _log(client, runs["thinned"], steps))}
            results["all points"] = _fill(connection, lambda: _copy(connection, runs["all points"], steps))
            for name, run in runs.items():
                row = results[name] | _latencies(uri, run, steps)
                print("| " + " | ".join([name, *(f"{value:,.0f}" for value in row.values())]) + " |", flush=True)
            print(", ".join(row))
    print(f"largest deviation of the loss's envelope over 1000 columns: {_deviation(steps):.3g} of its range")
    print(json.dumps(describe_machine()))
    return 0


def measurements(steps: int) -> Iterator[list[Point]]:
    """The metrics of each step: noise around a falling curve, with a spike now and then."""
    noise = random.Random(0)  # noqa: S311
    for step in range(1, steps + 1):
        spike = 10.0 if step % _SPIKE_EVERY == 0 else 0.0
        yield [
            Point(f"train/metric_{metric}", metric + 2.0 / step**0.2 + noise.gauss(0, 0.05) + spike, step * 100, step)
            for metric in range(METRICS)
        ]


def thinned(steps: int) -> Iterator[Point]:
    """The points that are delivered with the default settings."""
    dense = TrackingSettings().dense_points
    thinner = Thinner(Series(dense=dense))
    for measurement in measurements(steps):
        yield from thinner.add(measurement)
    yield from thinner.close(dense=dense)


def _deviation(steps: int) -> float:
    """Largest difference between the envelopes of all and of the thinned points of the first metric, relative to its range."""
    envelopes: list[dict[int, tuple[float, float]]] = []
    for points in ((measurement[0] for measurement in measurements(steps)), thinned(steps)):
        columns: dict[int, tuple[float, float]] = {}
        for point in points:
            if point.key == "train/metric_0":
                column = (point.step - 1) * 1000 // steps
                low, high = columns.get(column, (point.value, point.value))
                columns[column] = (min(low, point.value), max(high, point.value))
        envelopes.append(columns)
    whole, thin = envelopes
    extent = max(high for _, high in whole.values()) - min(low for low, _ in whole.values())
    return max(abs(a - b) for column in whole for a, b in zip(whole[column], thin[column], strict=True)) / extent


def _fill(connection: Any, fill: Callable[[], None]) -> dict[str, float]:  # noqa: ANN401 - psycopg2 has no types
    """Rows, size in MiB and seconds of a run that is written."""
    before, started = _metrics(connection), time.monotonic()
    fill()
    seconds = time.monotonic() - started
    after = _metrics(connection)
    return {"rows": after[0] - before[0], "MiB": (after[1] - before[1]) / 2**20, "seconds to write": seconds}


def _metrics(connection: Any) -> tuple[int, int]:  # noqa: ANN401
    """Rows and bytes of the metrics, with their indexes."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE metrics")
        cursor.execute("SELECT count(*), pg_total_relation_size('metrics') FROM metrics")
        [(rows, size)] = cursor.fetchall()
    return rows, size


def _log(client: mlflow.MlflowClient, run: str, steps: int) -> None:
    points = thinned(steps)
    with upload_timeout():  # a machine that is busy
        while batch := [mlflow.entities.Metric(*point) for point in islice(points, MAX_METRICS)]:
            client.log_batch(run, metrics=batch)


def _copy(connection: Any, run: str, steps: int) -> None:  # noqa: ANN401
    points = (point for measurement in measurements(steps) for point in measurement)
    with connection.cursor() as cursor:
        while chunk := list(islice(points, _CHUNK)):
            lines = (f"{key}\t{value!r}\t{time}\t{run}\t{step}\tf\n" for key, value, time, step in chunk)
            cursor.copy_expert(
                "COPY metrics (key, value, timestamp, run_uuid, step, is_nan) FROM STDIN", StringIO("".join(lines))
            )


def _latencies(uri: str, run: str, steps: int) -> dict[str, float]:
    """Median and longest milliseconds of the query of a chart, whole and of its last hundredth."""

    def measure(**interval: int) -> Sequence[float]:
        query = {"run_ids": run, "metric_key": "train/metric_3", "max_results": UI_POINTS, **interval}
        address = f"{uri}/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?{urlencode(query)}"
        times = []
        for _ in range(_QUERIES):
            started = time.monotonic()
            with urllib.request.urlopen(address, timeout=600) as answer:  # noqa: S310 - the server below
                found = json.load(answer)["metrics"]
            times.append((time.monotonic() - started) * 1000)
            assert 1 < len(found) <= UI_POINTS, len(found)
        return times

    whole, zoomed = measure(), measure(start_step=steps - steps // 100, end_step=steps)
    return {
        "chart, median ms": statistics.median(whole),
        "chart, longest ms": max(whole),
        "zoomed, median ms": statistics.median(zoomed),
    }


@contextmanager
def _server(url: str, folder: Path) -> Iterator[str]:
    """An MLflow server with one worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "backend-store-uri": url,
        "artifacts-destination": str(folder),
        "host": "127.0.0.1",
        "port": str(port),
        "workers": "1",
    }
    command = [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())]
    log = folder / "server.log"
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as server,
    ):
        try:
            deadline = time.monotonic() + _START_SECONDS
            while True:
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"MLflow's server did not start:\n{log.read_text()[-3000:]}")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main())
