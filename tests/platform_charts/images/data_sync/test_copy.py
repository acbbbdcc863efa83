"""Copies from a real S3 API, by the program as a process."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.s3 import S3Api
from tests.engines.small_disk import small_disk
from tests.platform_charts.images.data_sync.bucket import PART, Bucket, new_bucket

SECONDS = 60


@pytest.fixture
def bucket(s3_api: S3Api, tmp_path: Path) -> Iterator[Bucket]:
    with new_bucket(s3_api, tmp_path / "datasets") as found:
        yield found


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


class Gate:
    """Holds requests for objects after the first ones."""

    def __init__(self, *, after: int) -> None:
        self._left = after
        self._lock = threading.Lock()
        self.is_reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self, _key: str) -> None:
        with self._lock:
            self._left -= 1
            holds = self._left < 0
        if holds:
            self.is_reached.set()
            self._opened.wait(SECONDS)

    def open(self) -> None:
        """Let all requests pass."""
        self._opened.set()


def journal(bucket: Bucket) -> list[dict[str, Any]]:
    """What a run has recorded as complete so far."""
    file = bucket.root / ".data-sync" / "x" / "journal.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_many_small_objects_with_nested_and_unicode_keys_arrive_and_a_second_run_reads_none(bucket: Bucket) -> None:
    objects = {f"part-{number % 7}/deep/{number:04}.bin": content(number) for number in range(997)}
    objects |= {"träin/画像 1.jpg": b"image", "a+b%20c&d=e?.txt": b"quoted", "empty": b""}
    bucket.put(objects)
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, objects), output
    assert len(bucket.proxy.gets) == 1000
    bucket.proxy.forget()
    status, output = bucket.run()
    assert (status, bucket.proxy.gets, bucket.proxy.lists) == (0, [], 1), output
    assert "1000 objects; 1000 are there, 0 to copy" in output


def test_the_manifest_has_the_size_and_the_checksum_of_every_file(bucket: Bucket) -> None:
    bucket.put({"a": b"one"}, ChecksumAlgorithm="SHA256")
    assert bucket.run()[0] == 0
    (line,) = (bucket.root / ".data-sync" / "x" / "manifest.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["path"], record["size"]) == ("a", 3)
    # echo -n one | md5sum; echo -n one | sha256sum
    assert record["checksums"]["ETag"] == "f97c5d29941bfb1b2fdab0874906ab82"
    assert record["checksums"]["ChecksumSHA256"] == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"


@pytest.mark.parametrize("sizes", [[PART, PART, 1000], [PART, PART + 7, 1000]], ids=["equal parts", "other parts"])
def test_an_object_of_parts_is_read_by_parts_and_verified(bucket: Bucket, sizes: list[int]) -> None:
    body = content(sum(sizes))
    bucket.put_parts("big", body, sizes=sizes)
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, {"big": body}), output
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    ranges = {f"bytes={start}-{start + size - 1}" for start, size in zip(starts, sizes, strict=True)}
    assert {text for _, text in bucket.proxy.gets} == ranges
    (line,) = (bucket.root / ".data-sync" / "x" / "manifest.jsonl").read_text().splitlines()
    assert "ETag" in json.loads(line)["checksums"]


def test_an_object_of_parts_with_a_checksum_of_its_own_arrives(bucket: Bucket) -> None:
    """As boto3 uploads large files by default."""
    body = content(PART + 10)
    bucket.put_parts("big", body, sizes=[PART, 10], ChecksumAlgorithm="CRC32")
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, {"big": body}), output


def test_a_killed_run_is_continued_and_only_the_rest_is_read(bucket: Bucket) -> None:
    objects = {f"{number:03}": content(1000 + number) for number in range(60)}
    bucket.put(objects)
    bucket.proxy.before = gate = Gate(after=25)
    with bucket.start("--workers=4") as process:
        assert gate.is_reached.wait(SECONDS)
        process.kill()
    gate.open()
    done = {f"data/{line['path']}" for line in journal(bucket)}
    assert 20 <= len(done) <= 25
    bucket.proxy.forget()
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, objects), output
    # A set, because the proxy may count a request that the killed run had sent.
    assert set(bucket.proxy.keys()) == {f"data/{key}" for key in objects} - done


def test_a_killed_run_is_continued_inside_an_object_of_parts(bucket: Bucket) -> None:
    body = content(3 * PART + 1)
    bucket.put_parts("big", body, sizes=[PART, PART, PART, 1])
    bucket.proxy.before = gate = Gate(after=2)
    with bucket.start("--workers=1") as process:
        assert gate.is_reached.wait(SECONDS)
        process.kill()
    gate.open()
    assert [line["number"] for line in journal(bucket)] == [1, 2]
    assert bucket.files() == {}
    bucket.proxy.forget()
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, {"big": body}), output
    assert {text for _, text in bucket.proxy.gets} == {
        f"bytes={2 * PART}-{3 * PART - 1}",
        f"bytes={3 * PART}-{3 * PART}",
    }


def test_a_stopped_run_says_so_and_is_continued(bucket: Bucket) -> None:
    bucket.put({f"{number:03}": b"x" for number in range(30)})
    bucket.proxy.before = gate = Gate(after=10)
    with bucket.start("--workers=2") as process:
        assert gate.is_reached.wait(SECONDS)
        process.send_signal(signal.SIGTERM)
        gate.open()
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 130, output
    assert bucket.run()[0] == 0
    assert len(bucket.files()) == 30


def test_a_corrupt_answer_is_read_again(bucket: Bucket) -> None:
    bucket.put({"a": b"right"})
    answers = iter([b"wrong"])
    bucket.proxy.change = lambda _key, body: next(answers, body)
    status, output = bucket.run()
    assert (status, bucket.files(), len(bucket.proxy.gets)) == (0, {"a": b"right"}, 2), output


@pytest.mark.parametrize("form", ["in one piece", "in parts"])
def test_an_object_whose_content_stays_wrong_fails_and_replaces_nothing(bucket: Bucket, form: str) -> None:
    bucket.put({"a": b"old", "b": b"good"})
    assert bucket.run()[0] == 0
    if form == "in parts":
        bucket.put_parts("a", content(PART + 3), sizes=[PART, 3])
    else:
        bucket.put({"a": b"new"})
    bucket.put({"c": b"other"})
    bucket.proxy.change = lambda key, body: bytes(len(body)) if key.endswith("a") else body
    status, output = bucket.run()
    assert status == 1
    assert "data/a: the content does not have the object's ETag" in output
    assert bucket.files() == {"a": b"old", "b": b"good", "c": b"other"}
    bucket.proxy.forget()
    assert bucket.run()[0] == 0
    assert set(bucket.proxy.keys()) == {"data/a"}


def test_an_object_that_changes_during_the_copy_fails_and_the_next_run_copies_it(bucket: Bucket) -> None:
    bucket.put({"a": b"one", "b": b"two"})
    bucket.proxy.before = lambda key: bucket.put({"a": b"changed"}) if key == "data/a" else None
    status, output = bucket.run("--workers=1")
    assert (status, bucket.files()) == (1, {"b": b"two"})
    assert "data/a: changed during the copy" in output
    bucket.proxy.forget()
    assert bucket.run()[0] == 0
    assert bucket.files() == {"a": b"changed", "b": b"two"}


def test_a_changed_object_and_a_changed_file_are_copied_again(bucket: Bucket) -> None:
    bucket.put({"a": b"one", "b": b"two", "c": b"three"})
    assert bucket.run()[0] == 0
    bucket.put({"a": b"new"})
    (bucket.root / "x" / "b").write_bytes(b"odd")
    bucket.proxy.forget()
    assert bucket.run()[0] == 0
    assert sorted(bucket.proxy.keys()) == ["data/a", "data/b"]
    assert bucket.files() == {"a": b"new", "b": b"two", "c": b"three"}


def test_content_without_a_checksum_fails_unless_it_is_accepted(bucket: Bucket) -> None:
    bucket.put({"a": b"secret"}, ServerSideEncryption="aws:kms")
    status, output = bucket.run()
    assert status == 1
    assert "the content of 1 files could not be verified" in output
    assert bucket.run("--accept-unverified")[0] == 0
    assert bucket.files() == {"a": b"secret"}


@pytest.mark.parametrize("algorithm", ["SHA256", "SHA1", "CRC32"])
def test_content_encrypted_with_a_kms_key_is_verified_by_its_own_checksum(bucket: Bucket, algorithm: str) -> None:
    bucket.put({"a": b"secret"}, ServerSideEncryption="aws:kms", ChecksumAlgorithm=algorithm)
    status, output = bucket.run()
    assert status == 0, output
    (line,) = (bucket.root / ".data-sync" / "x" / "manifest.jsonl").read_text().splitlines()
    assert list(json.loads(line)["checksums"]) == [f"Checksum{algorithm}"]


def test_only_with_delete_files_go_that_the_source_no_longer_has(bucket: Bucket) -> None:
    bucket.put({"a": b"1", "old/deep/b": b"2"})
    assert bucket.run()[0] == 0
    (bucket.root / "x" / "mine.txt").write_text("not copied")
    bucket.client.delete_object(Bucket=bucket.name, Key="data/old/deep/b")
    assert bucket.run()[0] == 0
    assert set(bucket.files()) == {"a", "old/deep/b", "mine.txt"}
    assert bucket.run("--delete")[0] == 0
    assert set(bucket.files()) == {"a", "mine.txt"}
    assert not (bucket.root / "x" / "old").exists()


@pytest.mark.parametrize("destination", ["datasets/x", "datasets/x/inner", "datasets/y/x"])
def test_one_run_at_a_time_writes_a_folder_and_those_around_it(bucket: Bucket, destination: str) -> None:
    bucket.put({"a": b"1"})
    bucket.proxy.before = gate = Gate(after=0)
    with bucket.start() as process:
        assert gate.is_reached.wait(SECONDS)
        bucket.proxy.before = lambda _key: None
        status, output = bucket.run(destination=destination)
        gate.open()
        assert process.wait(SECONDS) == 0
    if destination == "datasets/y/x":
        assert status == 0, output
    else:
        assert status == 3
        assert "another data-sync is writing" in output


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["../../etc/passwd"], "has . or .. as a name"),
        (["a/./b"], "has . or .. as a name"),
        (["a//b"], "has an empty name"),
        (["n" * 256], "has a name of more than 255 bytes"),
        (["a", "a/b"], "would be both a file and a folder"),
    ],
)
def test_keys_that_are_no_files_below_the_folder_are_refused_before_the_first_byte(
    bucket: Bucket, keys: list[str], message: str
) -> None:
    bucket.put({"good": b"1"})
    for key in keys:
        bucket.client.put_object(Bucket=bucket.name, Key=f"data/{key}", Body=b"x")
    status, output = bucket.run()
    assert (status, bucket.proxy.gets, bucket.files()) == (3, [], {})
    assert message in output


def test_folder_markers_are_left_out(bucket: Bucket) -> None:
    bucket.put({"": b"", "sub/": b"", "sub/a": b"1"})
    assert bucket.run()[0] == 0
    assert bucket.files() == {"sub/a": b"1"}


@pytest.mark.parametrize("obstacle", ["file above", "link above", "folder in place", "destination is a link"])
def test_a_copy_never_follows_links_and_never_replaces_folders(bucket: Bucket, obstacle: str, tmp_path: Path) -> None:
    bucket.put({"sub/a": b"1"})
    outside, folder = tmp_path / "outside", bucket.root / "x"
    outside.mkdir()
    if obstacle == "destination is a link":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
    if obstacle == "file above":
        (folder / "sub").write_text("a file")
    elif obstacle == "link above":
        (folder / "sub").symlink_to(outside)
    elif obstacle == "folder in place":
        (folder / "sub" / "a").mkdir(parents=True)
    status, output = bucket.run()
    assert (status, bucket.proxy.gets, list(outside.iterdir())) == (3, [], [])
    assert "would overwrite what is no file" in output


def test_a_copy_that_would_fill_the_disk_is_refused_with_the_numbers(s3_api: S3Api, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", size="1m") as root, new_bucket(s3_api, root) as bucket:
        bucket.put({"a": content(600_000), "b": content(600_000)})
        status, output = bucket.run()
        assert (status, bucket.proxy.gets) == (3, [])
        assert "the copy needs 1.2 MB (1200000 bytes), the file system has 1.0 MB" in output


@pytest.mark.parametrize(
    "destination",
    [
        "",
        "datasets",
        "datasets/",
        "/datasets/x",
        "x",
        "datasets/../x",
        "datasets/x/../../y",
        "datasets/.data-sync",
        "runs/x",
    ],
)
def test_a_destination_outside_the_datasets_is_refused(bucket: Bucket, destination: str) -> None:
    status, output = bucket.run(destination=destination)
    assert (status, list(bucket.root.iterdir())) == (2, [])
    assert "must be datasets/NAME" in output


def test_an_empty_source_is_refused(bucket: Bucket) -> None:
    assert bucket.run() == (3, f"error: s3://{bucket.name}/data/ has no objects\n")
