"""`make reference`: writes the reference and `.env.example`, and removes pages that are no longer made."""

from __future__ import annotations

from tests.reference.pages import ROOT, files, written

if __name__ == "__main__":
    made = files()
    for old in written():
        if old not in made:
            (ROOT / old).unlink()
    for path, text in made.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")
    print(f"wrote {len(made)} files")
