"""Tar shards, valid and damaged."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training.config.schema import DataSettings, OptionValue
from training.data import tar_index, tar_shards
from training.data.loader import EvalLoader
from training.data.registry import check_files, load_dataset, validate
from training.data.types import DataBundle
from training.errors import DataError, SettingsError

Members = dict[str, bytes]


def image(number: int) -> bytes:
    """A grey image whose brightness is its number."""
    file = io.BytesIO()
    Image.new("RGB", (10, 12), (4 * number, 4 * number, 4 * number)).save(file, "PNG")
    return file.getvalue()


def members(numbers: Iterable[int], *, target: Callable[[int], Members] | None = None) -> Members:
    """An image and a class for each number, which is the class of even and odd ones, 0 and 1."""
    label = target or (lambda number: {"cls": str(number % 2).encode()})
    return {
        f"part/{number:03}.{suffix}": content
        for number in numbers
        for suffix, content in {"png": image(number), **label(number)}.items()
    }


def write(file: Path, content: Members, *, form: int = tarfile.PAX_FORMAT) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w", format=form) as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file


def load(path: Path, **options: OptionValue) -> DataBundle:
    return load_dataset(DataSettings(dataset="tar_shards", path=path, options={"image_size": 8, **options}))


def refusal(path: Path, **options: OptionValue) -> str:
    with pytest.raises(DataError) as raised:
        load(path, **options)
    return str(raised.value)


def brightness(inputs: torch.Tensor) -> list[int]:
    """The numbers of images, see `image`."""
    return [round((float(one[0].mean()) * 0.229 + 0.485) * 255 / 4) for one in inputs]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three shards of unequal size, one of them without members."""
    for number, numbers in enumerate([range(30), range(0), range(30, 47)]):
        write(tmp_path / "shards" / f"{number}.tar", members(numbers))
    return tmp_path / "shards"


def test_samples_of_shards_of_unequal_size_are_read_from_their_places(shards: Path) -> None:
    """Also by a loader process."""
    bundle = load(shards)
    assert bundle.spec.shape == (3, 8, 8)
    assert bundle.spec.outputs == 2
    numbers: list[int] = []
    for split in (bundle.train, bundle.validation):
        (batch,) = EvalLoader(split, batch=len(split), rank=0, world=1, loader_workers=1)
        assert batch.targets.tolist() == [number % 2 for number in brightness(batch.inputs)]
        numbers += brightness(batch.inputs)
        assert torch.equal(split.read(np.arange(len(split))[::-1])[0], batch.inputs.flip(0))
    assert sorted(numbers) == list(range(47))
    assert len(bundle.validation) == 4, "a tenth of each class"


def test_members_of_every_tar_format_are_found(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        long = "a" * (90 if form == tarfile.USTAR_FORMAT else 300)
        content = {f"{long}/{name}": data for name, data in members(range(20)).items()}
        write(tmp_path / str(form) / "0.tar", content, form=form)
        bundle = load(tmp_path / str(form))
        assert len(bundle.train) + len(bundle.validation) == 20


def test_links_are_their_targets_and_files_of_no_sample_are_left_out(tmp_path: Path) -> None:
    """A README, the files that macOS's tar adds, and what `ln` and `ln -s` made."""
    shard = write(tmp_path / "d" / "0.tar", {"README": b"hello", "./part/._000.png": b"\0", **members(range(20))})
    with tarfile.open(shard, "a") as archive:
        for number, kind, linked in ((20, tarfile.LNKTYPE, "part/006.{}"), (21, tarfile.SYMTYPE, "./007.{}")):
            for suffix in ("png", "cls"):
                entry = tarfile.TarInfo(f"part/{number:03}.{suffix}")
                entry.type, entry.linkname = kind, linked.format(suffix)
                archive.addfile(entry)
    bundle = load(tmp_path / "d")
    read = [split.read(np.arange(len(split))) for split in (bundle.train, bundle.validation)]
    numbers = [number for inputs, _ in read for number in brightness(inputs)]
    assert sorted(numbers) == sorted([*range(20), 6, 7])
    assert [number % 2 for number in numbers] == [int(one) for _, targets in read for one in targets]


def test_the_class_is_where_the_target_says(tmp_path: Path) -> None:
    def of_json(field: object) -> Members:
        return {"json": json.dumps({"label": field, "other": "x"}).encode()}

    cases: list[tuple[Callable[[int], Members], str, list[int]]] = [
        (lambda number: of_json(number % 3), "json:label", [0, 1, 2] * 4),
        (lambda number: of_json(["pear", "apple"][number % 2]), "json:label", [1, 0] * 6),
        (lambda number: {"class.txt": b"dog\n" if number % 2 else b"cat\n", "cls": b"9"}, "class.txt", [0, 1] * 6),
    ]
    for number, (target, option, expected) in enumerate(cases):
        folder = tmp_path / str(number)
        for split in ("train", "val"):
            write(folder / split / "0.tar", members(range(12), target=target))
        bundle = load(folder, target=option)
        _, labels = bundle.train.read(np.arange(12))
        assert bundle.spec.outputs == len(set(expected))
        assert labels.tolist() == expected


def test_an_index_is_kept_and_made_anew_when_its_shard_changes(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[str] = []
    scan = tar_index._scan

    def recorded(shard: Path, target: str) -> tar_index.ShardIndex:
        scanned.append(shard.name)
        return scan(shard, target)

    monkeypatch.setattr(tar_index, "_scan", recorded)
    first = load(shards)
    assert scanned == ["0.tar", "1.tar", "2.tar"]
    assert load(shards).fingerprint == first.fingerprint
    assert len(scanned) == 3
    (shards / ".1.tar.index.npz").write_bytes(b"PK damaged")
    assert load(shards).fingerprint == first.fingerprint
    assert scanned[3:] == ["1.tar"]
    write(shards / "2.tar", members(range(30, 46)))
    changed = load(shards)
    assert scanned[4:] == ["2.tar"]
    assert changed.fingerprint != first.fingerprint
    assert len(changed.train) + len(changed.validation) == 46
    assert not list(shards.glob("*.npz.*")), "a partial index was left"


def test_a_folder_that_cannot_be_written_is_read(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert len(load(shards).train) == 43
    assert not list(shards.glob(".*"))


def test_more_shards_than_may_be_open_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_shards, "_OPEN", 2)
    for number in range(5):
        write(tmp_path / f"{number}.tar", members(range(4 * number, 4 * number + 4)))
    bundle = load(tmp_path)
    before = set(Path("/proc/self/fd").iterdir())
    inputs, _ = bundle.train.read(np.arange(len(bundle.train)))
    assert len(set(brightness(inputs))) == len(bundle.train)
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 3, "two shards and the folder that is listed"


def test_all_damaged_shards_are_named(shards: Path) -> None:
    first, last = shards / "0.tar", shards / "2.tar"
    for damage, said in (
        (lambda whole: whole[:530], "it is not a whole tar file"),
        (lambda whole: whole[:1200], "it is truncated: the archive has no end after byte 1024"),
        (lambda whole: whole[:2048], "it is truncated: the archive has no end after byte 2048"),
        (lambda whole: whole + whole, "more follows after its end"),
        (lambda whole: whole[:2048] + bytes([whole[2048] ^ 0xFF]) + whole[2049:], "header at byte 2048 is damaged"),
        (lambda _: b"no archive" * 200, "it is not a whole tar file"),
    ):
        good = {file: file.read_bytes() for file in (first, last)}
        for file, content in good.items():
            file.write_bytes(damage(content))
        message = refusal(shards)
        for file, content in good.items():
            assert re.search(rf"{file}: .*{said}", message), message
            file.write_bytes(content)


def test_samples_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[Members, str]] = [
        ({"a.png": image(1)}, "0.tar: no member .cls in sample a\n"),
        ({"a.cls": b"1"}, "0.tar: no image (avif, bmp, "),
        ({"a.png": image(1), "a.jpg": image(1), "a.cls": b"1"}, "sample a has two images"),
        ({"a.png": image(1), "a.cls": b"1", "a.CLS": b"2"}, "sample a has two members .cls"),
        ({"a.png": image(1), "a.cls": b""}, "the class in a.cls is '', expected a number or a name"),
        ({"a.png": image(1), "a.cls": b"-1"}, "has the class -1"),
    ]
    for number, (content, said) in enumerate(cases):
        write(tmp_path / str(number) / "0.tar", {**members(range(20)), **content})
        assert said in refusal(tmp_path / str(number))
    write(tmp_path / "0.tar", members(range(4), target=lambda _: {"json": b'{"caption": "x"}'}))
    assert "part/000.json has no field label of a JSON object" in refusal(tmp_path, target="json:label")


def test_a_link_that_leads_nowhere_is_refused_by_name(tmp_path: Path) -> None:
    shard = write(tmp_path / "0.tar", members(range(20)))
    with tarfile.open(shard, "a") as archive:
        entry = tarfile.TarInfo("part/020.png")
        entry.type, entry.linkname = tarfile.SYMTYPE, "../elsewhere/1.png"
        archive.addfile(entry)
    assert "part/020.png is a link to ../elsewhere/1.png, which is no file before it" in refusal(tmp_path)


def test_a_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    for split, name in (("train", b"cat"), ("val", b"dog")):
        write(tmp_path / split / "0.tar", members(range(4), target=lambda _, name=name: {"cls": name}))  # type: ignore[misc]
    assert "has classes that are not in the training split: dog" in refusal(tmp_path)


def test_a_byte_order_mark_is_no_part_of_a_class(tmp_path: Path) -> None:
    write(
        tmp_path / "0.tar",
        members(range(40), target=lambda one: {"cls": b"\xef\xbb\xbf" * (one % 2) + b"ab"[one % 4 // 2 :][:1]}),
    )
    assert json.loads(load(tmp_path).files["classes.json"]) == ["a", "b"]


def test_codes_with_leading_zeros_are_classes_of_their_own(tmp_path: Path) -> None:
    codes = (b"01", b"1", b"010", b"10")
    write(tmp_path / "0.tar", members(range(40), target=lambda number: {"cls": codes[number % 4]}))
    bundle = load(tmp_path)
    assert bundle.spec.outputs == 4
    assert json.loads(bundle.files["classes.json"]) == ["01", "010", "1", "10"]


def test_a_damaged_image_is_named_with_its_shard(tmp_path: Path) -> None:
    write(tmp_path / "train" / "0.tar", {**members(range(20)), "bad.png": b"no image", "bad.cls": b"0"})
    write(tmp_path / "val" / "0.tar", members(range(4)))
    train = load(tmp_path).train
    with pytest.raises(DataError, match=r"cannot decode image bad in .*0\.tar"):
        train.read(np.arange(len(train)))


def test_compressed_archives_and_a_target_without_members_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0.tar.gz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"has no \.tar files, but \.gz\n"):
        check_files(DataSettings(dataset="tar_shards", path=tmp_path))
    with pytest.raises(SettingsError, match=r"data\.options\.target = \.?JSON: must be the suffix of a member"):
        validate(DataSettings(dataset="tar_shards", path=Path("x"), options={"target": "JSON"}))
