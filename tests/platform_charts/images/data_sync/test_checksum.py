"""Which checksums of a response are computed, and of what; responses as in the S3 API reference, "HeadObject"."""

from __future__ import annotations

from typing import Any

from platform_charts.images.data_sync.checksum import Crc32, checks_of

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
