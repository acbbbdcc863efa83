"""Copies from a real S3 API."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platform_charts.images.data_sync.checksum import Crc32, checks_of
from tests.engines.s3 import S3Api
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


def manifest(bucket: Bucket) -> dict[str, dict[str, Any]]:
    """What is recorded of each file of a complete copy."""
    lines = (bucket.root / ".data-sync" / "x" / "manifest.jsonl").read_text().splitlines()
    return {record["path"]: record for record in map(json.loads, lines)}


def test_many_small_objects_with_nested_and_unicode_keys_arrive_and_a_second_run_reads_none(bucket: Bucket) -> None:
    objects = {f"part-{number % 7}/deep/{number:04}.bin": content(number) for number in range(97)}
    objects |= {"träin/画像 1.jpg": b"image", "a+b%20c&d=e?.txt": b"quoted", "empty": b""}
    bucket.put({**objects, "": b"", "marker/of/a/folder/": b""})
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, objects), output
    assert len(bucket.proxy.gets) == 100
    bucket.proxy.forget()
    status, output = bucket.run()
    assert (status, bucket.proxy.gets, bucket.proxy.lists) == (0, [], 1), output
    assert "100 objects; 100 are there, 0 to copy" in output


def test_the_manifest_has_the_size_and_the_checksums_of_every_file(bucket: Bucket) -> None:
    bucket.put({"a": b"one"}, ChecksumAlgorithm="SHA256")
    algorithms = ("SHA256", "SHA1", "CRC32")
    for algorithm in algorithms:  # which alone verify what is encrypted with a KMS key
        bucket.put({algorithm: b"secret"}, ServerSideEncryption="aws:kms", ChecksumAlgorithm=algorithm)
    assert bucket.run()[0] == 0
    found = manifest(bucket)
    assert found["a"]["size"] == 3
    # echo -n one | md5sum; echo -n one | sha256sum
    assert found["a"]["checksums"]["ETag"] == "f97c5d29941bfb1b2fdab0874906ab82"
    sha256 = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert found["a"]["checksums"]["ChecksumSHA256"] == sha256
    assert {name: list(found[name]["checksums"]) for name in algorithms} == {
        name: [f"Checksum{name}"] for name in algorithms
    }


def test_objects_of_equal_and_of_other_parts_are_read_by_parts_and_verified(bucket: Bucket) -> None:
    layouts: dict[str, tuple[list[int], dict[str, str]]] = {
        "equal": ([PART, PART, 1000], {}),
        "other": ([PART, PART + 7, 1000], {}),
        "with its own checksum": ([PART, 10], {"ChecksumAlgorithm": "CRC32"}),  # as boto3 uploads large files
    }
    bodies, ranges = {}, set()
    for name, (sizes, options) in layouts.items():
        bodies[name] = content(sum(sizes))
        bucket.put_parts(name, bodies[name], sizes=sizes, **options)
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        ranges |= {(f"data/{name}", f"bytes={a}-{a + size - 1}") for a, size in zip(starts, sizes, strict=True)}
    status, output = bucket.run()
    assert (status, bucket.files()) == (0, bodies), output
    assert set(bucket.proxy.gets) == ranges
    assert all("ETag" in record["checksums"] for record in manifest(bucket).values())


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


def test_objects_whose_content_stays_wrong_fail_and_replace_nothing(bucket: Bucket) -> None:
    old = {"one piece": b"old", "parts": b"old too", "b": b"good"}
    bucket.put(old)
    assert bucket.run()[0] == 0
    bucket.put_parts("parts", content(PART + 3), sizes=[PART, 3])
    bucket.put({"one piece": b"new", "c": b"other"})
    wrong = {"data/one piece", "data/parts"}
    bucket.proxy.change = lambda key, body: bytes(len(body)) if key in wrong else body
    status, output = bucket.run()
    assert status == 1
    assert all(f"{key}: the content does not have the object's ETag" in output for key in wrong)
    assert bucket.files() == {**old, "c": b"other"}
    bucket.proxy.forget()
    assert bucket.run()[0] == 0
    assert set(bucket.proxy.keys()) == wrong


def test_an_object_that_changes_during_the_copy_fails_and_the_next_run_copies_it(bucket: Bucket) -> None:
    bucket.put({"a": b"one", "b": b"two"})
    bucket.proxy.before = lambda key: bucket.put({"a": b"changed"}) if key == "data/a" else None
    status, output = bucket.run("--workers=1")
    assert (status, bucket.files()) == (1, {"b": b"two"})
    assert "data/a: changed during the copy" in output
    bucket.proxy.forget()
    assert bucket.run()[0] == 0
    assert bucket.files() == {"a": b"changed", "b": b"two"}


def test_content_without_a_checksum_fails_unless_it_is_accepted(bucket: Bucket) -> None:
    bucket.put({"a": b"secret"}, ServerSideEncryption="aws:kms")
    status, output = bucket.run()
    assert status == 1
    assert "the content of 1 files could not be verified" in output
    assert bucket.run("--accept-unverified")[0] == 0
    assert bucket.files() == {"a": b"secret"}


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


def test_one_run_at_a_time_writes_a_folder_and_those_around_it(bucket: Bucket) -> None:
    bucket.put({"a": b"1"})
    bucket.proxy.before = gate = Gate(after=0)
    with bucket.start() as process:
        assert gate.is_reached.wait(SECONDS)
        bucket.proxy.before = lambda _key: None
        for destination in ("datasets/x", "datasets/x/inner"):
            status, output = bucket.run(destination=destination)
            assert (status, "another data-sync is writing" in output) == (3, True), output
        assert bucket.run(destination="datasets/y/x")[0] == 0
        gate.open()
        assert process.wait(SECONDS) == 0


def test_keys_that_are_no_files_below_the_folder_are_refused_before_the_first_byte(bucket: Bucket) -> None:
    bucket.put({"good": b"1", "a": b"1"})
    for key, message in (
        ("../../etc/passwd", "has . or .. as a name"),
        ("a/./b", "has . or .. as a name"),
        ("a//b", "has an empty name"),
        ("n" * 256, "has a name of more than 255 bytes"),
        ("a/b", "would be both a file and a folder"),
    ):
        bucket.put({key: b"x"})
        status, output = bucket.run()
        assert (status, bucket.proxy.gets, bucket.files()) == (3, [], {}), key
        assert message in output
        bucket.client.delete_object(Bucket=bucket.name, Key=f"data/{key}")


def test_a_copy_never_follows_links_and_never_replaces_folders(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put({"sub/a": b"1"})
    outside, obstacles = tmp_path / "outside", ("file above", "link above", "folder in place", "destination is a link")
    outside.mkdir()
    for number, obstacle in enumerate(obstacles):
        folder = bucket.root / str(number)
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
        status, output = bucket.run(destination=f"datasets/{number}")
        assert (status, bucket.proxy.gets, list(outside.iterdir())) == (3, [], []), obstacle
        assert "would overwrite what is no file" in output


def test_a_destination_outside_the_datasets_and_an_empty_source_are_refused(bucket: Bucket) -> None:
    status, output = bucket.run(destination="datasets/../x")
    assert (status, list(bucket.root.iterdir())) == (2, [])
    assert "must be datasets/NAME" in output
    assert bucket.run() == (3, f"error: s3://{bucket.name}/data/ has no objects\n")


MD5 = "f97c5d29941bfb1b2fdab0874906ab82"


RESPONSES: list[tuple[dict[str, Any], list[tuple[str, bool]]]] = [
    ({"ETag": f'"{MD5}"'}, [("ETag", False)]),
    ({"ETag": f'"{MD5}"', "ServerSideEncryption": "AES256"}, [("ETag", False)]),
    ({"ETag": f'"{MD5}"', "ServerSideEncryption": "aws:kms"}, []),
    ({"ETag": f'"{MD5}"', "ServerSideEncryption": "aws:kms:dsse"}, []),
    ({"ETag": f'"{MD5}"', "SSECustomerAlgorithm": "AES256"}, []),
    ({"ETag": f'"{MD5}-3"'}, [("ETag", True)]),
    ({"ETag": f'"{MD5}"', "ChecksumCRC32": "AAAAAA=="}, [("ETag", False), ("ChecksumCRC32", False)]),
    (
        {"ETag": f'"{MD5}-3"', "ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"},
        [("ETag", True), ("ChecksumCRC32", True)],
    ),
    (
        {"ETag": f'"{MD5}-3"', "ChecksumCRC32": "AAAAAA==", "ChecksumType": "FULL_OBJECT"},
        [("ETag", True), ("ChecksumCRC32", False)],
    ),
    ({"ETag": f'"{MD5}-3"', "ChecksumCRC32": "AAAAAA=="}, [("ETag", True)]),
    ({"ETag": f'"{MD5}"', "ChecksumCRC64NVME": "AAAAAAAAAAA="}, [("ETag", False)]),
    ({"ETag": '"not-hexadecimal"'}, []),
]


def test_checks_of_a_response() -> None:
    for response, checks in RESPONSES:
        assert [(one.name, one.is_of_parts) for one in checks_of(response)] == checks, response


def test_crc32_has_the_check_value_of_the_catalogue() -> None:
    """The CRC of `123456789` is cbf43926 (CRC RevEng catalogue, CRC-32/ISO-HDLC)."""
    crc = Crc32()
    crc.update(b"12345")
    crc.update(b"6789")
    assert crc.digest().hex() == "cbf43926"
