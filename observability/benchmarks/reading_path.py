"""What reading with Ray Data costs more than reading with loader processes: the same images, in the same order, with one process each."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from observability.benchmarks.measure import Comparison, measure_alternately, parse_last_json, run_module
from training.config.schema import DataSettings

BATCH = 64
EPOCHS = 3
"""The first one has the start of the processes."""

_IMAGES = 1000
_SIDE = 224

_MEASURED = {
    "first_seconds": ("time to the first batch", "s", 30.0, False),
    "rate": ("samples per second", "samples/s", 0.8, True),
    "cpu_per_thousand": ("CPU time of 1,000 samples", "s", 1.5, False),
}
"""What a side prints: name, unit, goal, and whether more is better."""


def data_settings(folder: Path) -> DataSettings:
    """The settings of a run that reads the images."""
    return DataSettings.model_validate(
        {
            "dataset": "parquet",
            "path": str(folder),
            "options": {"kind": "images", "inputs": ["image"], "target": "label", "image_size": _SIDE},
        }
    )


def compare(*, rounds: int, scratch: Path) -> list[Comparison]:
    """Compare Ray Data with one loader process; JPEG files of 256 x 256 in Parquet, decoded to 224 x 224, in batches of 64."""
    folder = _write_images(scratch / "images")
    found: dict[str, list[dict[str, float]]] = {"ray_data": [], "loader": []}

    def measured(reader: str) -> float:
        _, _, output = run_module("observability.benchmarks.reading_run", reader, str(folder))
        found[reader].append(parse_last_json(output))
        return found[reader][-1]["rate"]

    def ray_data() -> float:
        return measured("ray_data")

    def loader() -> float:
        return measured("loader")

    measure_alternately(rounds, ray_data, loader)
    return [
        Comparison(
            name=f"Ray Data and a loader process, {name}",
            unit=unit,
            ours=[one[key] for one in found["ray_data"]],
            theirs=[one[key] for one in found["loader"]],
            goal=goal,
            higher_is_better=more_is_better,
        )
        for key, (name, unit, goal, more_is_better) in _MEASURED.items()
    ]


def _write_images(folder: Path) -> Path:
    """Write images of smooth noise, whose files have the size of photographs'."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    files = []
    for _ in range(_IMAGES):
        coarse = Image.fromarray(generator.integers(0, 255, size=(32, 32, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    table = pa.table({"image": files, "label": np.arange(_IMAGES) % 10})
    pq.write_table(table, folder / "0.parquet", row_group_size=100)
    return folder
