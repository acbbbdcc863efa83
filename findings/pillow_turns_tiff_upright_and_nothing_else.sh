#!/usr/bin/env bash
# Pillow 13.0.0: an image whose EXIF data say that it has to be turned by 90 degrees keeps its pixels as they are stored in JPEG, MPO, PNG,
# WebP and AVIF; in TIFF it is turned while it is decoded, its size is swapped already when the file is opened, and the orientation is gone
# from getexif() after that.
# So the same picture in two formats has two shapes, and code that turns images by the orientation that it read before decoding turns TIFF
# twice.
# Guess: Pillow turns nothing by itself, because it has ImageOps.exif_transpose for that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action=ignore --target "$folder/packages" Pillow==13.0.0
cat >"$folder/run.py" <<'PY'
import io

from PIL import ExifTags, Image

for kind in ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "TIFF"):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    stored = io.BytesIO()
    Image.new("RGB", (16, 8)).save(stored, kind, exif=exif)
    image = Image.open(stored)
    opened, before = image.size, image.getexif().get(ExifTags.Base.Orientation)
    image.load()
    print(kind, opened, before, "decoded", image.size, image.getexif().get(ExifTags.Base.Orientation))
PY
PYTHONPATH=$folder/packages python3 "$folder/run.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
JPEG (16, 8) 6 decoded (16, 8) 6
MPO (16, 8) 6 decoded (16, 8) 6
PNG (16, 8) 6 decoded (16, 8) 6
WEBP (16, 8) 6 decoded (16, 8) 6
AVIF (16, 8) 6 decoded (16, 8) 6
TIFF (8, 16) 6 decoded (8, 16) None
SEEN
