#!/usr/bin/env bash
# Pillow 13.0.0: TIFF says in its tag PhotometricInterpretation whether 0 is black (1) or white (0). Grey samples of 1, 2, 4 and 8 bits are
# inverted where 0 is white, so that the decoded image always has black as 0; those of 16 bits keep their stored values, in the same mode
# for both, and the decoded image is a negative. Samples of 12 bits are decoded as 0 to 4095 in the mode of 16 bits.
# Guess: an image is decoded to black as 0 at every depth, or a depth for which that is not done is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action=ignore --target "$folder/packages" Pillow==13.0.0
cat >"$folder/run.py" <<'PY'
import io
import struct

from PIL import Image


def tiff(bits: int, photometric: int, row: bytes) -> io.BytesIO:
    """Eight grey samples in one row (TIFF 6.0, section 4)."""
    tags = {256: 8, 257: 1, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1, 278: 1, 279: len(row)}
    directory = b"".join(struct.pack("<HHII", tag, 4 if tag == 273 else 3, 1, value) for tag, value in tags.items())
    head = b"II*\0" + struct.pack("<I", 8 + len(row) + len(row) % 2)
    return io.BytesIO(head + row + bytes(len(row) % 2) + struct.pack("<H", len(tags)) + directory + bytes(4))


for bits in (1, 2, 4, 8, 12, 16):
    for photometric, name in ((1, "0 is black"), (0, "0 is white")):
        try:
            image = Image.open(tiff(bits, photometric, b"\xff" * bits))
            print(bits, "bits,", name, image.mode, "all bits set:", image.getpixel((0, 0)))
        except OSError as error:
            print(bits, "bits,", name, type(error).__name__)
PY
PYTHONPATH=$folder/packages python3 "$folder/run.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
1 bits, 0 is black 1 all bits set: 255
1 bits, 0 is white 1 all bits set: 0
2 bits, 0 is black L all bits set: 255
2 bits, 0 is white L all bits set: 0
4 bits, 0 is black L all bits set: 255
4 bits, 0 is white L all bits set: 0
8 bits, 0 is black L all bits set: 255
8 bits, 0 is white L all bits set: 0
12 bits, 0 is black I;16 all bits set: 4095
12 bits, 0 is white UnidentifiedImageError
16 bits, 0 is black I;16 all bits set: 65535
16 bits, 0 is white I;16 all bits set: 65535
SEEN
