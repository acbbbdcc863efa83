"""Parquet files, valid and damaged."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.training.runs import losses_of, run_alone, small_settings
from training.config.schema import DataSettings, OptionValue
from training.data.loader import TrainLoader
from training.data.options import TargetKind
from training.data.order import BatchPlan
from training.data.parquet_files import ParquetFile, RowGroups
from training.data.registry import check_files, load_dataset, validate
from training.data.types import DataBundle
from training.errors import DataError, SettingsError

FEATURES: dict[str, OptionValue] = {"inputs": ["a", "b"], "target": "label"}


def write(file: Path, columns: Mapping[str, Any], *, group: int = 7) -> None:
    """Writes a file with row groups of `group` rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), file, row_group_size=group)


def rows(count: int, *, first: int = 0) -> dict[str, Any]:
    """Two numbers and a class for each row; the first number is the row's own."""
    number = np.arange(first, first + count)
    return {"a": number.astype(np.float64), "b": number % 5, "label": number % 3}


def load(path: Path, **options: OptionValue) -> DataBundle:
    return load_dataset(DataSettings(dataset="parquet", path=path, options=options))


def refusal(path: Path, **options: OptionValue) -> str:
    """What is said of files that are refused when they are loaded."""
    with pytest.raises((DataError, SettingsError)) as raised:
        load(path, **options)
    return str(raised.value)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three files of unequal size, one of them without rows, in a folder without splits."""
    for number, (first, count) in enumerate([(0, 40), (40, 0), (40, 23)]):
        write(tmp_path / "table" / "part" / f"{number}.parquet", rows(count, first=first))
    return tmp_path / "table"


def test_rows_of_files_of_unequal_size_are_read_by_number(table: Path) -> None:
    bundle = load(table, **FEATURES)
    assert bundle.spec.shape == (2,)
    assert bundle.spec.outputs == 3
    numbers: list[int] = []
    for split in (bundle.train, bundle.validation):
        inputs, labels = split.read(np.arange(len(split))[::-1])
        assert inputs.dtype == torch.float32
        own = inputs[:, 0].long()
        assert torch.equal(inputs[:, 1].long(), own % 5)
        assert torch.equal(labels, own % 3)
        numbers += own.tolist()
    assert sorted(numbers) == list(range(63))
    assert len(bundle.validation) == 6, "a tenth of each class"
    assert bundle.test is bundle.validation


def test_the_folders_of_the_splits_are_used(tmp_path: Path) -> None:
    for split, first, count in (("train", 0, 20), ("val", 20, 8), ("test", 28, 5)):
        write(tmp_path / split / "0.parquet", rows(count, first=first))
    bundle = load(tmp_path, **FEATURES)
    splits = (bundle.train, bundle.validation, bundle.test)
    assert [int(split.read(np.array([0]))[0][0, 0]) for split in splits] == [0, 20, 28]
    assert [len(split) for split in splits] == [20, 8, 5]


def test_an_epoch_is_the_same_in_loader_processes_and_from_a_start_step(table: Path) -> None:
    bundle = load(table, **FEATURES)
    plan = BatchPlan(size=len(bundle.train), global_batch=8, world=1)

    def epoch(loader_workers: int, start: int = 0) -> list[list[list[float]]]:
        loader = TrainLoader(bundle.train, plan=plan, seed=3, rank=0, loader_workers=loader_workers)
        return [batch.inputs.tolist() for (batch,) in loader.epoch(1, start)]

    expected = epoch(0)
    assert epoch(2) == expected
    assert epoch(0, start=3) == expected[3:]


def test_a_run_that_is_stopped_within_an_epoch_resumes_exactly(table: Path, tmp_path: Path) -> None:
    orders: dict[str, dict[str, OptionValue]] = {"random": {}, "windowed": {"shuffle": "windowed", "window": 2}}
    for name, order in orders.items():
        sections: dict[str, dict[str, Any]] = {
            "data": {"dataset": "parquet", "path": str(table), "options": {**FEATURES, **order}},
            "model": {"name": "mlp"},
            "schedule": {"name": "constant"},
        }
        whole = small_settings(**sections, loop={"epochs": 2, "global_batch": 8})
        cut = small_settings(**sections, loop={"epochs": 2, "global_batch": 8, "max_steps": 4})
        expected = run_alone(whole, tmp_path / name / "whole")
        assert run_alone(cut, tmp_path / name / "parts").step == 4, "half of the first epoch"
        assert run_alone(whole, tmp_path / name / "parts", attempt=1) == expected
        assert losses_of(tmp_path / name / "parts") == losses_of(tmp_path / name / "whole")


def test_the_type_of_the_target_says_what_it_is(tmp_path: Path) -> None:
    cases: dict[str, tuple[list[Any], int, torch.Tensor]] = {
        "strings": (["pear", "apple", "fig", "apple"] * 5, 3, torch.tensor([2, 0, 1, 0] * 5)),
        "booleans": ([True, False] * 10, 2, torch.tensor([1, 0] * 10)),
        "floats": ([0.5, -1.0] * 10, 1, torch.tensor([[0.5], [-1.0]] * 10)),
        "lists": ([[0.5, 1.0], [0.0, 2.0]] * 10, 2, torch.tensor([[0.5, 1.0], [0.0, 2.0]] * 10)),
    }
    for name, (target, outputs, expected) in cases.items():
        for split in ("train", "val"):
            write(tmp_path / name / split / "0.parquet", {"a": np.arange(20.0), "label": target})
        bundle = load(tmp_path / name, inputs=["a"], target="label")
        _, targets = bundle.train.read(np.arange(20))
        assert bundle.spec.outputs == outputs, name
        assert torch.equal(targets, expected), name


def test_columns_of_any_name_and_of_every_type_of_numbers_are_read(tmp_path: Path) -> None:
    whole = list(range(20))
    columns = {
        "user": whole,
        "user.id": pa.array([Decimal(one) for one in whole], pa.decimal128(9, 2)),
        "user.id.x": pa.array(whole).dictionary_encode(),
        "a b": pa.array(whole, pa.uint64()),
        "half": pa.array(np.arange(20, dtype=np.float16)),
        "label": pa.array(["x", "y"] * 10).dictionary_encode(),
    }
    write(tmp_path / "0.parquet", columns)
    names = [name for name in columns if name != "label"]
    inputs, targets = load(tmp_path, inputs=names, target="label").train.read(np.arange(18))
    assert all(torch.equal(inputs[:, 0], inputs[:, column]) for column in range(len(names)))
    assert torch.equal(inputs[:, 0] % 2, targets.float())
    pq.write_table(pa.table([whole, whole, whole], names=["a", "a", "label"]), tmp_path / "0.parquet")
    assert "has 2 columns of the name a" in refusal(tmp_path, inputs=["a"], target="label")


def test_columns_whose_values_float32_merges_are_named(tmp_path: Path) -> None:
    start = 1_700_000_000_000
    columns = {
        "milliseconds": start + np.arange(20),
        "outlier": np.where(np.arange(20) == 3, 0, start + np.arange(20)),
        "seconds": (start + np.arange(20)) / 1000.0,
        "near": np.arange(20),
        "far_apart": start * np.arange(20),
        "constant": np.full(20, start),
        "label": np.arange(20) % 2,
    }
    write(tmp_path / "0.parquet", columns)
    names = [name for name in columns if name != "label"]
    notes = load(tmp_path, inputs=names, target="label").notes
    target = load(tmp_path, inputs=["near"], target="milliseconds", targets="values").notes
    assert [re.match(r"column milliseconds: of 7 distinct", note) is not None for note in target] == [True]
    assert [re.findall(r"column (\w+): of (\d+) distinct .* leaves (\d+);", note) for note in notes] == [
        [("milliseconds", "7", "1")],
        [("outlier", "7", "2")],
        [("seconds", "7", "1")],
    ]


def test_whole_decimals_are_exact_classes_and_a_single_class_is_refused(tmp_path: Path) -> None:
    large = [Decimal(2**53 + number % 2) for number in range(20)]
    write(
        tmp_path / "0.parquet", {"a": np.arange(20.0), "label": pa.array(large, pa.decimal128(38, 0)), "one": [7] * 20}
    )
    bundle = load(tmp_path, inputs=["a"], target="label", targets="classes")
    assert bundle.spec.outputs == 2
    assert json.loads(bundle.files["classes.json"]) == [str(2**53), str(2**53 + 1)]
    assert "all samples are of one class, 7" in refusal(tmp_path, inputs=["a"], target="one")


def test_one_column_of_lists_is_the_features(tmp_path: Path) -> None:
    values = [[row, row + 1, row + 2, row + 3] for row in range(20)]
    for number, kind in enumerate((pa.list_(pa.float32()), pa.list_(pa.float32(), 4), pa.large_list(pa.int8()))):
        columns = {"x": pa.array(values, type=kind), "label": np.arange(20) % 2}
        write(tmp_path / str(number) / "0.parquet", columns)
        bundle = load(tmp_path / str(number), inputs=["x"], target="label")
        inputs, _ = bundle.train.read(np.arange(len(bundle.train)))
        assert bundle.spec.shape == (4,)
        assert torch.equal(inputs - inputs[:, :1], torch.arange(4.0).expand(len(inputs), 4)), kind


def test_tokens_are_classified_or_predict_the_next(tmp_path: Path) -> None:
    texts = [[(row + place) % 50 for place in range(9)] for row in range(30)]
    write(tmp_path / "0.parquet", {"tokens": texts, "label": np.arange(30) % 4})
    options: dict[str, OptionValue] = {"kind": "tokens", "inputs": ["tokens"], "vocabulary": 50}
    next_token, classes = load(tmp_path, **options), load(tmp_path, **options, target="label")
    inputs, targets = next_token.train.read(np.array([4, 1]))
    assert (next_token.spec.shape, next_token.spec.outputs, next_token.spec.is_sequence) == ((8,), 50, True)
    assert inputs.dtype == torch.int64
    assert torch.equal((inputs + 1) % 50, targets)
    assert (classes.spec.shape, classes.spec.outputs, classes.spec.is_sequence) == ((9,), 4, False)
    assert refusal(tmp_path / "none", **options)
    narrow = load(tmp_path, kind="tokens", inputs=["tokens"], vocabulary=20)
    with pytest.raises(DataError, match=r"has the token 2\d, outside data\.options\.vocabulary=20"):
        narrow.train.read(np.arange(len(narrow.train)))


def test_images_are_decoded_and_augmented_and_damaged_ones_named_by_their_row(tmp_path: Path) -> None:
    encoded: list[bytes] = []
    for row in range(20):
        file = io.BytesIO()
        Image.new("RGB", (12, 10), (200, 30, 30) if row % 2 else (30, 200, 30)).save(file, "PNG")
        encoded.append(file.getvalue())
    for images in (encoded, [{"bytes": one, "path": None} for one in encoded]):
        write(tmp_path / "0.parquet", {"image": images, "label": np.arange(20) % 2})
        bundle = load(tmp_path, kind="images", inputs=["image"], target="label", image_size=8)
        inputs, labels = bundle.train.read(np.arange(len(bundle.train)), np.full((len(bundle.train), 5), 0.3))
        assert [split.draws for split in (bundle.train, bundle.validation)] == [5, 0]
        assert bundle.spec.shape == tuple(inputs.shape[1:]) == (3, 8, 8)
        assert torch.equal((inputs[:, 0].mean((1, 2)) > inputs[:, 1].mean((1, 2))).long(), labels)
    write(tmp_path / "0.parquet", {"image": [b"no image"] * 20, "label": np.arange(20) % 2})
    bundle = load(tmp_path, kind="images", inputs=["image"], target="label")
    with pytest.raises(DataError, match=r"cannot decode image in row \d of row group \d of .*0\.parquet"):
        bundle.train.read(np.array([3]))


def test_the_fingerprint_follows_samples_and_not_the_cache(table: Path) -> None:
    before = load(table, **FEATURES).fingerprint
    assert load(table, **FEATURES, cache_mib=1).fingerprint == before
    assert load(table, inputs=["b", "a"], target="label").fingerprint != before
    write(table / "part" / "2.parquet", rows(23, first=41))
    assert load(table, **FEATURES).fingerprint != before


def test_the_kept_row_groups_stay_within_the_limit(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", {"a": np.arange(100.0)}, group=10)
    decoded: list[float] = []

    def decode(part: pa.Table) -> NDArray[np.float64]:
        values = np.asarray(part.column("a").to_numpy())
        decoded.append(values[0])
        return values

    groups = RowGroups([ParquetFile.open(tmp_path / "0.parquet")], ["a"], decode, cache_bytes=2 * 80)
    for row in (5, 7, 15, 3, 25, 4, 15):
        ((_, values, (place,)),) = groups.take(np.array([row]))
        assert values[place] == row
    assert decoded == [0, 10, 20, 10], "the least recently used of two groups goes first"


def _with_null(values: list[Any]) -> pa.Array:
    return pa.array([*values[:-1], None])


@pytest.mark.parametrize(
    ("label", "wanted", "expected"),
    [
        ([3, 1] * 10, "values", torch.tensor([[3.0], [1.0]])),
        ([True, False] * 10, "values", torch.tensor([[1.0], [0.0]])),
        ([1.0, 0.0] * 10, "classes", torch.tensor([1, 0])),
        ([1.5, 0.0] * 10, "classes", "column label has the value 1.5, which is no class"),
        ([float("nan"), 0.0] * 10, "classes", "column label has the value nan, which is no class"),
        (["a", "b"] * 10, "values", "target=label has the type string, which are no values"),
        ([[1.0], [2.0]] * 10, "classes", r"target=label has the type list<.*>, which are no classes"),
    ],
)
def test_the_objective_says_what_the_targets_are(
    tmp_path: Path, label: list[Any], wanted: TargetKind, expected: torch.Tensor | str
) -> None:
    write(tmp_path / "0.parquet", {"a": np.arange(20.0), "label": label})
    settings = DataSettings(dataset="parquet", path=tmp_path, options={"inputs": ["a"], "target": "label"})
    if isinstance(expected, str):
        with pytest.raises((DataError, SettingsError), match=expected):
            load_dataset(settings, targets=wanted)
        return
    bundle = load_dataset(settings, targets=wanted)
    inputs, targets = bundle.train.read(np.arange(len(bundle.train)))
    first = [int(np.flatnonzero(inputs.squeeze(1).numpy().astype(int) % 2 == parity)[0]) for parity in (0, 1)]
    assert torch.equal(targets[first], expected)


def test_columns_that_do_not_fit_are_refused_with_what_there_is(tmp_path: Path) -> None:
    unequal = {"x": [[1.0, 2.0], [1.0]] * 10, "label": [0, 1] * 10}
    cases: list[tuple[dict[str, Any], dict[str, OptionValue], str]] = [
        (rows(20), {"inputs": ["a", "c"], "target": "label"}, r"inputs: .*0\.parquet has no column c\n.*a \(double\)"),
        (rows(20), {"inputs": ["a"], "target": "kind"}, r"target: .* has no column kind\n.*label \(int64\)"),
        ({**rows(20), "a": ["x"] * 20}, FEATURES, r"column a has the type string\n.*columns of one number"),
        ({**rows(20), "a": _with_null([1.0] * 20)}, FEATURES, r"column a has 1 nulls in row group 2 of .*0\.parquet"),
        ({**rows(20), "label": _with_null(["x"] * 20)}, FEATURES, r"column label has 1 nulls in row group 2"),
        ({**rows(20), "label": [-1] * 20}, FEATURES, r"column label has the class -1\n.*from 0"),
        ({**rows(20), "label": [b"x"] * 20}, FEATURES, r"target=label has the type binary"),
        (unequal, {"inputs": ["x"], "target": "label"}, r"the lists of column x have several lengths: 1\.57"),
        (rows(0), FEATURES, r"the 1 files of the train split have no rows"),
        (rows(20), {"inputs": ["a"], "kind": "images", "target": "label"}, r"column a has the type double\n.*bytes"),
        (rows(20), {"inputs": ["a"], "kind": "tokens", "vocabulary": 9}, r"type double\n.*lists of integers"),
    ]
    for number, (columns, options, said) in enumerate(cases):
        write(tmp_path / str(number) / "0.parquet", columns)
        assert re.search(f"(?s){said}", refusal(tmp_path / str(number), **options)), said


def test_lists_of_unequal_length_and_nulls_in_them_are_found_when_they_are_read(tmp_path: Path) -> None:
    for values, group, said in (
        ([[1.0], [1.0, 2.0, 3.0]] * 10, 20, "the list of column x in row 0 has 1 values, expected 2"),
        ([[1.0, None]] * 20, 7, r"row group 0 of .*0\.parquet: column x has 7 nulls, the first in value 1"),
    ):
        write(tmp_path / "0.parquet", {"x": values, "label": [0, 1] * 10}, group=group)
        bundle = load(tmp_path, inputs=["x"], target="label")
        with pytest.raises(DataError, match=said):
            bundle.train.read(np.array([0]))


def test_files_with_other_types_and_classes_that_training_lacks_are_refused(table: Path, tmp_path: Path) -> None:
    write(table / "part" / "2.parquet", {**rows(9), "a": np.arange(9)})
    assert "column a has several types: double in " in refusal(table, **FEATURES)
    write(tmp_path / "train" / "0.parquet", {"a": np.arange(4.0), "label": ["x", "y"] * 2})
    write(tmp_path / "val" / "0.parquet", {"a": np.arange(4.0), "label": ["x", "z"] * 2})
    assert "classes that are not in the training split: z" in refusal(tmp_path, inputs=["a"], target="label")


def test_all_damaged_files_are_named(table: Path) -> None:
    first, last = table / "part" / "0.parquet", table / "part" / "2.parquet"
    first.write_bytes(first.read_bytes()[:-20])
    last.write_bytes(b"no parquet at all")
    said = refusal(table, **FEATURES)
    assert f"{first} is damaged: " in said
    assert f"{last} is damaged: " in said


def test_a_damaged_row_group_is_named_when_it_is_read(table: Path) -> None:
    bundle = load(table, **FEATURES)
    file = table / "part" / "0.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    with pytest.raises(DataError, match=r"row group \d of .*0\.parquet cannot be read"):
        bundle.train.read(np.arange(len(bundle.train)))


def test_a_folder_without_parquet_files_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"has no \.parquet files, but \.csv\n"):
        check_files(DataSettings(dataset="parquet", path=tmp_path))
    (tmp_path / "0.parquet").touch()
    with pytest.raises(DataError, match=r"empty \(0 bytes\): .*0\.parquet"):
        check_files(DataSettings(dataset="parquet", path=tmp_path))


def test_options_that_do_not_fit_each_other_are_refused() -> None:
    cases: list[tuple[dict[str, OptionValue], str]] = [
        ({}, r"data\.options\.inputs"),
        ({"inputs": ["a"]}, "target is not set, but kind=features needs"),
        ({"inputs": ["a", "b"], "kind": "images", "target": "c"}, "has 2 columns, but kind=images takes one"),
        ({"inputs": ["a"], "kind": "tokens"}, "vocabulary=None: kind=tokens needs it"),
        ({"inputs": ["a"], "target": "a"}, "target=a is one of inputs"),
        ({"inputs": ["a"], "target": "c", "image_size": 9}, "image_size=9 is an option of kind=images"),
    ]
    for options, said in cases:
        with pytest.raises(SettingsError, match=said):
            validate(DataSettings(dataset="parquet", path=Path("x"), options=options))
