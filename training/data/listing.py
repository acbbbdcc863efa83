"""The files that a dataset was read from, kept with a run: when it is resumed with others, the refusal names those that differ."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LISTING_FILE: Final = "files.npz"
"""In the folder `data` of a run."""

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class FileListing:
    """What the fingerprint of a dataset knows of each of its files.

    Attributes:
        names: paths below the dataset's folder, shape (n,).
        marks: 8 bytes that differ if what is known of the file does, shape (n,): its size, or the begin of a hash.
    """

    names: NDArray[np.bytes_]
    marks: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        names: Sequence[bytes],
        contents: Mapping[str, NDArray[np.uint8]],
        known: NDArray[np.int64] | Sequence[bytes],
    ) -> FileListing:
        """The listing of a dataset's files.

        Args:
            names: their paths below the dataset's folder.
            contents: see `training.data.contents.content_arrays`; if there are any, they are all that counts.
            known: of each file its size, or a hash of what is known of it.
        """
        if contents:
            marks = np.ascontiguousarray(contents["contents"][:, :8]).view(np.int64)[:, 0]
        elif isinstance(known, np.ndarray):
            marks = known
        else:
            marks = np.frombuffer(b"".join(one[:8] for one in known), dtype=np.int64)
        return cls(names=np.array(names, dtype=np.bytes_), marks=marks)

    @classmethod
    def load(cls, folder: Path) -> FileListing | None:
        """The listing that was kept in a folder; None if there is none, or it is damaged."""
        try:
            with np.load(folder / LISTING_FILE, allow_pickle=False) as arrays:
                return cls(names=arrays["names"], marks=arrays["marks"])
        except Exception:  # noqa: BLE001 - whatever a damaged archive raises: it only explains
            return None

    def encode(self) -> bytes:
        """The content of `LISTING_FILE`."""
        content = io.BytesIO()
        np.savez_compressed(content, names=self.names, marks=self.marks)
        return content.getvalue()

    def changes(self, now: FileListing) -> str:
        """How the files of `now` differ from these: `1 file differs: train/a/1.png; 2 are new: …`; empty if they do not."""
        before, after = _by_name(self), _by_name(now)
        common = before.keys() & after.keys()
        kinds = [
            ("differs", "differ", {name for name in common if before[name] != after[name]}),
            ("is new", "are new", after.keys() - common),
            ("is missing", "are missing", before.keys() - common),
        ]
        left = _SHOWN
        said = []
        for one, many, names in kinds:
            if not names:
                continue
            shown = [os.fsdecode(name) for name in sorted(names)[:left]]
            left -= len(shown)
            more = ", …" if shown and len(shown) < len(names) else ""
            count = f"{len(names):,} {'file' if len(names) == 1 else 'files'} {one if len(names) == 1 else many}"
            said.append(f"{count}: {', '.join(shown)}{more}" if shown else count)
        return "; ".join(said)


def _by_name(listing: FileListing) -> dict[bytes, int]:
    return dict(zip(listing.names.tolist(), listing.marks.tolist(), strict=True))
