"""Which of a registry's tags is newer than ours."""

from __future__ import annotations

from infra.lifecycle.release.numbering import newer_like, newer_releases


def test_only_a_tag_of_the_same_variant_and_numbering_is_newer() -> None:
    for tag, available, newer in (
        ("v0.19.2", ["v0.9.9", "v0.20.0", "v0.19.10"], "v0.20.0"),
        ("v0.19.2", ["v0.19.2", "v0.19.1"], None),
        ("v3.14.0-distroless", ["v3.15.0", "v3.14.1-distroless", "v3.16.0-rc.0-distroless"], "v3.14.1-distroless"),
        ("4.6.0-4.8.3-a", ["4.6.1-4.8.3-ubi9", "4.6.0-4.9.0-a", "4.5.9-5.0.0-a"], "4.6.0-4.9.0-a"),
        ("13.2.0", ["13.3", "13.2.1-ubuntu", "latest", "13.2.1", "9.9.9"], "13.2.1"),
        ("3.11-slim-b", ["3.14-slim-b", "3.15-slim-trixie", "3.14.1-slim-b"], "3.14-slim-b"),
        ("1.8.7", ["sha256-0123.sig", "v1.9.0"], None),
    ):
        assert newer_like(tag, available) == newer, tag


def test_newer_releases_are_no_prereleases() -> None:
    for version, available, newer in (
        ("1.6.2", ["1.7.0", "1.10.0", "1.6.2", "2.0.0-rc.1", "main"], ("1.10.0", "1.7.0")),
        ("v0.5.30", ["v0.5.9", "0.6.0"], ("0.6.0",)),
        ("2.60.0", ["2.60.0", "2.61.0rc0"], ()),
    ):
        assert newer_releases(version, available) == newer, version
