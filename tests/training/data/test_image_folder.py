"""Image folders, valid and damaged."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import ExifTags, Image

from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings
from training.data import contents
from training.data.image_folder import load_image_folder
from training.data.images import ImageDecoder, centre_box, random_box
from training.data.loader import TrainLoader
from training.data.options import ImageFolderOptions
from training.data.order import BatchPlan
from training.data.registry import check_files, load_dataset
from training.data.types import DataBundle
from training.errors import DataError, ResumeMismatchError

COLOURS = {"apple": (200, 30, 40), "pear": (40, 180, 60)}


def write_image(path: Path, *, colour: tuple[int, int, int], size: tuple[int, int] = (20, 16), seed: int = 0) -> None:
    """Writes an image of a colour with some noise, so that files and crops differ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-20, 20, (size[1], size[0], 3))
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five images per class under train, two under val, one under test, in four formats."""
    folder = tmp_path / "fruit"
    for split, names in {
        "train": ["a.png", "b.jpg", "c.JPEG", "d.bmp", "e.webp"],
        "val": ["f.png", "g.png"],
        "test": ["h.png"],
    }.items():
        for label, colour in COLOURS.items():
            for seed, name in enumerate(names):
                write_image(folder / split / label / name, colour=colour, seed=seed)
    return folder


def _load(path: Path, validation_fraction: float = 0.2, image_size: int = 8) -> DataBundle:
    settings = DataSettings(dataset="image_folder", path=path, validation_fraction=validation_fraction)
    return load_image_folder(settings, ImageFolderOptions(image_size=image_size))


def _load_error(path: Path) -> str:
    with pytest.raises(DataError) as raised:
        _load(path)
    assert raised.value.remedy
    return str(raised.value)


def _epoch_error(loader: TrainLoader) -> DataError:
    """Returns the error of an epoch without its traceback, which would keep the loader workers alive."""
    try:
        list(loader.epoch(0))
    except DataError as error:
        return error.with_traceback(None)
    pytest.fail("the epoch raised no DataError")


def test_every_image_has_the_label_of_its_folder(root: Path) -> None:
    bundle = _load(root)
    inputs, labels = bundle.train.read(np.arange(10))
    assert inputs.shape == (10, *bundle.spec.shape) == (10, 3, 8, 8)
    assert inputs.is_contiguous()
    assert labels.tolist() == [0] * 5 + [1] * 5
    is_red = inputs[:, 0].mean((1, 2)) > inputs[:, 1].mean((1, 2))
    assert is_red.tolist() == [True] * 5 + [False] * 5


def _decoded(image: Image.Image, root: Path, suffix: str, *, quality: int = 75) -> NDArray[np.float64]:
    """An image's pixels as the split decodes them from a file: shape (8, 8, 3), 0 to 255."""
    for file in (root / "test" / "apple").iterdir():
        file.unlink()
    image.save(root / "test" / "apple" / f"h{suffix}", quality=quality)
    inputs, _ = _load(root).test.read(np.array([0]))
    mean, std = np.array((0.485, 0.456, 0.406)), np.array((0.229, 0.224, 0.225))
    pixels: NDArray[np.float64] = 255 * (inputs[0].permute(1, 2, 0).numpy() * std + mean)
    return pixels


def test_images_of_16_bits_are_scaled_to_8_and_those_of_32_refused_by_name(root: Path) -> None:
    for suffix, dtype in ((".png", "<u2"), (".tif", "<u2"), (".big-endian.tif", ">u2")):
        for value in (0, 51, 255):
            wide = np.full((20, 20), 257 * value, dtype=dtype)
            np.testing.assert_allclose(_decoded(Image.fromarray(wide), root, suffix), value, atol=1e-3)
    for deep in (np.full((20, 20), 1000, dtype=np.int32), np.full((20, 20), 1000, dtype=np.float32)):
        with pytest.raises(DataError, match=r"cannot decode image .*/h\.tif: its samples .*no known range.*convert it"):
            _decoded(Image.fromarray(deep), root, ".tif")


def _grey_tiff(bits: int, photometric: int, data: bytes) -> bytes:
    """A TIFF of 20 x 20 grey samples in one strip (TIFF 6.0, section 4)."""
    entries = [
        (256, 3, 20), (257, 3, 20), (258, 3, bits), (259, 3, 1), (262, 3, photometric),
        (273, 4, 8), (277, 3, 1), (278, 3, 20), (279, 4, len(data)),
    ]  # fmt: skip
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(entries)) + directory + bytes(4)


@pytest.mark.parametrize(
    ("bits", "photometric", "data", "value"),
    [
        (12, 1, b"\xff\xff\xff", 255),
        (12, 1, b"\x80\x08\x00", 128),
        (16, 1, b"\x00\x80", 128),
        (16, 0, b"\x00\x00", 255),
        (16, 0, b"\x00\xf0", 15),
    ],
)
def test_samples_of_a_tiff_have_its_bits_and_its_white(
    bits: int, photometric: int, data: bytes, value: int, root: Path
) -> None:
    path = root / "test" / "apple" / "deep.tif"
    path.write_bytes(_grey_tiff(bits, photometric, data * (20 * 20 * bits // 8 // len(data))))
    decoder = ImageDecoder(side=8, orientation="exif")
    assert decoder.decode(str(path), uniforms=None, name="deep").ravel().tolist() == [value] * 192


def test_other_modes_keep_their_colour_and_lose_their_transparency(root: Path) -> None:
    palette = Image.new("P", (20, 20), 200)
    palette.putpalette(bytes((255, 153, 51)) * 256)
    for image, rgb in (
        (Image.new("1", (20, 20), 1), (255, 255, 255)),
        (Image.new("L", (20, 20), 128), (128, 128, 128)),
        (Image.new("LA", (20, 20), (128, 7)), (128, 128, 128)),
        (Image.new("RGBA", (20, 20), (10, 20, 30, 0)), (10, 20, 30)),
        (palette, (255, 153, 51)),
    ):
        np.testing.assert_allclose(_decoded(image, root, ".png")[4, 4], rgb, atol=1e-3)
    cmyk = Image.new("RGB", (20, 20), (200, 100, 50)).convert("CMYK")
    np.testing.assert_allclose(_decoded(cmyk, root, ".jpg", quality=95)[4, 4], (200, 100, 50), atol=3)


def test_evaluation_crops_the_centre(root: Path) -> None:
    image = np.zeros((80, 160, 3), dtype=np.uint8)
    image[:, 40:120] = 255
    Image.fromarray(image).save(root / "test" / "apple" / "h.png")
    inputs, _ = _load(root).test.read(np.array([0]))
    assert inputs.amin((0, 2, 3)).tolist() == inputs.amax((0, 2, 3)).tolist()


def test_augmentation_is_a_function_of_the_uniforms_of_which_the_last_mirrors(root: Path) -> None:
    train = _load(root).train
    assert train.draws == 5
    ids = np.array([0, 7])
    drawn = np.random.default_rng(0).random((2, train.draws))
    first, again = train.read(ids, drawn)[0], train.read(ids, drawn)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, train.read(ids, drawn[::-1])[0])
    left, right = (train.read(np.array([0]), np.array([[0.5, 0.5, 0.5, 0.5, last]]))[0] for last in (0.4, 0.6))
    assert torch.equal(left, right.flip(-1))


@given(
    width=st.integers(1, 5000),
    height=st.integers(1, 5000),
    drawn=st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4),
)
def test_a_training_crop_lies_within_the_image(width: int, height: int, drawn: list[float]) -> None:
    left, upper, right, lower = random_box((width, height), np.array(drawn))
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height


def test_the_uniforms_of_a_training_crop_are_area_aspect_ratio_left_and_upper() -> None:
    side = (400 * 300 * (0.08 + 0.92 * 0.5)) ** 0.5
    box = random_box((400, 300), np.array([0.5, 0.5, 0.25, 0.75]))
    left, upper = 0.25 * (400 - side), 0.75 * (300 - side)
    assert box == pytest.approx((left, upper, left + side, upper + side))


@given(width=st.integers(1, 5000), height=st.integers(1, 5000))
def test_the_evaluation_crop_is_the_central_seven_eighths_of_the_short_side(width: int, height: int) -> None:
    left, upper, right, lower = centre_box((width, height))
    side = 0.875 * min(width, height)
    assert (right - left, lower - upper) == pytest.approx((side, side))
    assert (left + right, upper + lower) == pytest.approx((width, height))


def test_without_a_validation_folder_a_fraction_of_each_class_is_held_out(root: Path) -> None:
    shutil.rmtree(root / "val")
    bundle = _load(root, validation_fraction=0.4)
    assert (len(bundle.train), len(bundle.validation), len(bundle.test)) == (6, 4, 2)
    assert bundle.validation.read(np.arange(4))[1].tolist() == [0, 0, 1, 1]
    assert bundle.validation.draws == 0


def test_without_a_test_folder_the_validation_split_is_the_test_split_and_other_files_are_counted(root: Path) -> None:
    (root / "train" / "apple" / "notes.txt").write_text("not an image")
    (root / "train" / "apple" / "._a.png").write_bytes(b"macOS metadata")
    shutil.rmtree(root / "test")
    bundle = _load(root)
    assert bundle.test is bundle.validation
    assert (len(bundle.train), len(bundle.test)) == (10, 4)
    assert bundle.notes == ("left out, because they are no images: 1 hidden, 1 .txt",)


def test_a_folder_valid_is_the_validation_split_and_what_is_in_no_split_or_class_is_said(root: Path) -> None:
    (root / "val").rename(root / "valid")
    (root / "extra").mkdir()
    shutil.copy(root / "train" / "pear" / "a.png", root / "train" / "stray.png")
    bundle = _load(root)
    assert len(bundle.validation) == 4
    assert bundle.notes == (
        "left out, because they are no split: the folders extra",
        "left out, because they are in no folder of a class: 1 files in train",
    )


def test_images_in_folders_below_that_of_their_class_are_used(root: Path) -> None:
    """Also behind a link to a folder; one that leads back up is passed over."""
    before = _load(root)
    for number, name in enumerate(("monday/morning/a.JFIF", "tuesday/a.gif")):
        (root / "train" / "pear" / name).parent.mkdir(parents=True)
        colours = np.full((9, 9, 3), 50 * number, dtype=np.uint8)
        Image.fromarray(colours).save(root / "train" / "pear" / name, format=("JPEG", "GIF")[number])
    (root / "train" / "pear" / "linked").symlink_to("monday")
    (root / "train" / "pear" / "monday" / "up").symlink_to("..")
    bundle = _load(root)
    assert len(bundle.train) == len(before.train) + 3
    assert bundle.train.read(np.arange(len(bundle.train)))[1].tolist() == [0] * 5 + [1] * 8
    assert json.loads(bundle.files["classes.json"]) == ["apple", "pear"]


def test_images_are_upright_as_their_exif_data_say_unless_they_are_read_as_stored(root: Path) -> None:
    """One corner of the upright image is black; each file has its pixels turned so that its EXIF orientation turns them back."""
    upright = Image.fromarray(np.full((32, 32, 3), 255, np.uint8))
    upright.paste((0, 0, 0), (0, 0, 16, 16))
    undone = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    shutil.rmtree(root / "val" / "apple")
    for orientation in range(10):  # 1 is upright, 0 and 9 have no meaning
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        turn = undone.get(orientation)
        image = upright if turn is None else upright.transpose(turn)
        (root / "val" / "apple").mkdir(exist_ok=True)
        image.save(root / "val" / "apple" / f"{orientation}.png", exif=exif)
        if orientation == 6:  # Pillow turns a TIFF by itself, and nothing else
            image.save(root / "val" / "apple" / "x.tiff", exif=exif)

    def black_corners(orientation: Literal["exif", "stored"]) -> list[int]:
        settings = DataSettings(dataset="image_folder", path=root)
        bundle = load_image_folder(settings, ImageFolderOptions(image_size=16, orientation=orientation))
        inputs, _ = bundle.validation.read(np.arange(11))
        return inputs[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]].argmin(dim=1).tolist()

    assert black_corners("exif") == [0] * 11
    assert len(set(black_corners("stored"))) == 4


def test_a_run_of_images_as_they_are_stored_has_the_fingerprint_of_earlier_releases(root: Path) -> None:
    settings = DataSettings(dataset="image_folder", path=root)
    stored = load_image_folder(settings, ImageFolderOptions(image_size=8, orientation="stored"))
    upright = _load(root)
    assert upright.fingerprint != stored.fingerprint
    assert upright.earlier == {stored.fingerprint: "data.options.orientation=stored"}


def test_contents_are_part_of_the_fingerprint_if_asked_for_and_read_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read: list[bytes] = []
    hashed = contents._sha256

    def counted(path: bytes) -> bytes:
        read.append(path)
        return hashed(path)

    monkeypatch.setattr(contents, "_sha256", counted)

    def load(kind: Literal["files", "contents"]) -> DataBundle:
        settings = DataSettings(dataset="image_folder", path=root, fingerprint=kind)
        return load_image_folder(settings, ImageFolderOptions(image_size=8))

    before = load("files"), load("contents")
    assert len(read) == 16
    assert load("contents").fingerprint == before[1].fingerprint
    bitmap = root / "train" / "pear" / "d.bmp"
    status = bitmap.stat()
    bitmap.write_bytes(bitmap.read_bytes()[:-1] + b"x")
    os.utime(bitmap, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    after = load("files"), load("contents")
    assert read[16:] == [os.fsencode(bitmap)]
    assert after[0].fingerprint == before[0].fingerprint
    assert after[1].fingerprint != before[1].fingerprint
    listings = [one.listing for one in (before[1], after[1])]
    assert listings[0] is not None
    assert listings[1] is not None
    assert listings[0].changes(listings[1]) == "1 file differs: train/pear/d.bmp"


def test_a_refused_resume_names_the_files_that_differ_and_the_setting_of_an_earlier_release(
    root: Path, tmp_path: Path
) -> None:
    def train(orientation: str) -> None:
        settings = small_settings(
            data={
                "dataset": "image_folder",
                "path": str(root),
                "options": {"image_size": 8, "orientation": orientation},
            },
            model={"name": "mlp"},
            loop={"max_steps": 2, "global_batch": 4},
        )
        run_alone(settings, tmp_path / "run")

    train("stored")
    with pytest.raises(ResumeMismatchError) as caught:
        train("exif")
    assert "data.options.orientation=stored" in caught.value.remedy
    for number in range(6):
        write_image(root / "train" / "pear" / f"new{number}.png", colour=(1, 2, 3))
    (root / "val" / "pear" / "g.png").unlink()
    write_image(root / "train" / "apple" / "a.png", colour=(1, 2, 3), size=(40, 40))
    with pytest.raises(ResumeMismatchError) as caught:
        train("stored")
    assert str(caught.value.args[0]).splitlines()[-1] == (
        "1 file differs: train/apple/a.png; 6 files are new: train/pear/new0.png, train/pear/new1.png, train/pear/new2.png, "
        "train/pear/new3.png, …; 1 file is missing"
    )


def test_the_fingerprint_depends_on_names_and_sizes_of_files_and_images_and_a_fraction_in_use(root: Path) -> None:
    before = _load(root).fingerprint
    (root / "train" / "pear" / "a.png").touch()
    assert _load(root).fingerprint == _load(root, 0.4).fingerprint == before
    (root / "train" / "pear" / "a.png").rename(root / "train" / "pear" / "z.png")
    renamed = _load(root).fingerprint
    write_image(root / "val" / "pear" / "f.png", colour=(1, 2, 3), size=(40, 40))
    changed, smaller = _load(root).fingerprint, _load(root, image_size=16).fingerprint
    shutil.rmtree(root / "val")
    held_out = [_load(root, fraction).fingerprint for fraction in (0.2, 0.4)]
    assert len({before, renamed, changed, smaller, *held_out}) == 6


def test_folders_that_are_no_dataset_are_named(root: Path, tmp_path: Path) -> None:
    assert f"data.path={tmp_path / 'nowhere'} is not a folder" in _load_error(tmp_path / "nowhere")
    assert "has no folder named train" in _load_error(tmp_path)
    write_image(root / "val" / "plum" / "a.png", colour=(90, 30, 120))
    assert f"class {root / 'val' / 'plum'} is not in the training split" in _load_error(root)
    (root / "train" / "quince").mkdir()
    assert f"class folder {root / 'train' / 'quince'} has no images" in _load_error(root)
    (root / "train" / "quince").rmdir()
    shutil.rmtree(root / "train" / "pear")
    assert "has 1 class folder(s), expected at least 2" in _load_error(root)


def _dangle(path: Path) -> None:
    path.symlink_to("nowhere")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def test_an_image_that_is_no_readable_file_is_named_before_training(root: Path) -> None:
    makes: list[tuple[Callable[[Path], object], str]] = [
        (_dangle, "No such file or directory"),
        (_link_to_itself, "Too many levels of symbolic links"),
        (os.mkfifo, "is not a file"),
        (Path.touch, "is empty (0 bytes)"),
    ]
    for number, (make, reason) in enumerate(makes):
        place = root / ("train", "val", "test")[number % 3] / "pear" / "new.png"
        make(place)
        with pytest.raises(DataError) as caught:
            load_dataset(DataSettings(dataset="image_folder", path=root))
        assert str(place) in str(caught.value)
        assert reason in str(caught.value)
        assert caught.value.remedy
        place.rmdir() if place.is_dir() else place.unlink()


def test_a_broken_link_in_place_of_a_folder_is_named_before_the_run_starts(root: Path) -> None:
    for folder, link in (("train/quince", _dangle), ("val", _link_to_itself), ("test", _dangle)):
        shutil.rmtree(root / folder, ignore_errors=True)
        link(root / folder)
        with pytest.raises(DataError, match=f"{root / folder}") as caught:
            check_files(DataSettings(dataset="image_folder", path=root))
        assert caught.value.remedy
        (root / folder).unlink()


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_a_truncated_image_ends_the_epoch_and_is_named(root: Path, loader_workers: int) -> None:
    for name in ("a.png", "b.jpg", "e.webp"):
        file = root / "train" / "pear" / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        bundle = _load(root)
        plan = BatchPlan(size=10, global_batch=4, world=1)
        loader = TrainLoader(bundle.train, plan=plan, seed=0, rank=0, loader_workers=loader_workers)
        error = _epoch_error(loader)
        assert f"cannot decode image {file}: " in str(error)
        assert error.remedy == "replace or delete the file"
        file.write_bytes(whole)
