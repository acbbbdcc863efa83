"""The steps that make two folders equal, for every case and for random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.code.three_way import name_of_copy, steps

Files = dict[str, str]


def test_each_case_has_its_step() -> None:
    def one(sha256: str | None) -> Files:
        return {} if sha256 is None else {"a": sha256}

    for base, here, there, act, restores in (
        ("1", "2", "1", "push", False),
        ("1", "1", "2", "pull", False),
        (None, "1", None, "push", False),
        (None, None, "1", "pull", False),
        ("1", None, "1", "delete there", False),
        ("1", "1", None, "delete here", False),
        ("1", "2", "3", "keep both", False),
        (None, "1", "2", "keep both", False),
        ("1", "2", None, "push", True),
        ("1", None, "2", "pull", True),
        ("1", "2", "2", "agree", False),
        ("1", None, None, "agree", False),
    ):
        (step,) = steps(one(base), one(here), one(there))
        assert (step.act, step.restores) == (act, restores), (base, here, there)


def test_equal_folders_and_what_is_left_out_need_no_step() -> None:
    assert list(steps({"a": "1"}, {"a": "1"}, {"a": "1"})) == []
    assert list(steps({"a": "1"}, {}, {"a": "1"}, leaves_out=lambda path: path == "a")) == []


def test_a_copy_has_a_free_name_beside_the_file() -> None:
    taken = {"sub/model.conflict-notes.py"}
    assert name_of_copy("sub/model.py", label="notes", taken=taken.__contains__) == "sub/model.conflict-notes-2.py"
    assert name_of_copy("Makefile", label="notes", taken=taken.__contains__) == "Makefile.conflict-notes"


FILES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2", "3"]))


@given(FILES, FILES, FILES)
def test_the_steps_lose_no_content_that_only_one_side_had_changed(base: Files, here: Files, there: Files) -> None:
    """Applied to plain dictionaries, the folders become equal, and whatever one side changed is still there."""
    mine, theirs = dict(here), dict(there)
    for step in steps(base, here, there):
        if step.act in {"push", "keep both"}:
            if step.act == "keep both":
                copy = name_of_copy(step.path, label="x", taken=lambda path: path in mine or path in theirs)
                mine[copy] = theirs[copy] = theirs[step.path]
            theirs[step.path] = mine[step.path]
        elif step.act == "pull":
            mine[step.path] = theirs[step.path]
        elif step.act == "delete here":
            del mine[step.path]
        elif step.act == "delete there":
            del theirs[step.path]
    assert mine == theirs
    for side in (here, there):
        for path, sha256 in side.items():
            if base.get(path) != sha256:
                assert sha256 in {mine.get(path), mine.get(f"{path}.conflict-x")}
