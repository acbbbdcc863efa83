"""The manifest and the state of the loop survive encoding, anything else is refused; and which checkpoints are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.checkpoint.parts import IDENTITY, progress
from training.checkpoint.manifest import FileEntry, LoopState, Manifest, part_file
from training.checkpoint.retention import Retention
from training.config.schema import CheckpointSettings

MANIFEST = Manifest(
    step=50,
    identity=IDENTITY,
    metric=0.97,
    created="2026-11-21T05:00:00.000+00:00",
    files=(FileEntry(name="model.safetensors", bytes=1234, sha256="a" * 64),),
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@given(step=st.integers(0, 10**9), metric=st.none() | finite, sizes=st.lists(st.integers(0, 2**50)))
def test_a_manifest_survives_encoding(step: int, metric: float | None, sizes: list[int]) -> None:
    files = tuple(FileEntry(name=f"f{i}", bytes=size, sha256="0" * 64) for i, size in enumerate(sizes))
    manifest = dataclasses.replace(MANIFEST, step=step, metric=metric, files=files)
    assert Manifest.decode(manifest.encode()) == manifest


@given(position=st.integers(0, len(MANIFEST.encode()) - 2), bit=st.integers(0, 7))
def test_a_manifest_with_a_flipped_bit_is_never_decoded_as_another(position: int, bit: int) -> None:
    data = bytearray(MANIFEST.encode())
    data[position] ^= 1 << bit
    try:
        decoded = Manifest.decode(bytes(data))
    except ValueError:
        return
    # JSON has several spellings of one value, e.g. 1e5 and 1E5; the value itself must not change.
    assert decoded == MANIFEST


@given(st.binary(max_size=200) | st.sampled_from([b"", b"[]", b"null", b"{}", b'"text"', b"\xff\xfe", b"{" * 50]))
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Manifest.decode(data)


def test_a_manifest_with_a_hash_of_the_settings_instead_of_the_settings_is_read() -> None:
    """As versions before wrote it."""
    record = json.loads(MANIFEST.encode())
    del record["sha256"], record["identity"]["settings"]
    record["identity"]["settings_sha256"] = "s" * 64
    digest = hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    identity = Manifest.decode(json.dumps({**record, "sha256": digest}).encode()).identity
    assert identity == dataclasses.replace(IDENTITY, settings={})
    assert identity.notes(IDENTITY) == []


def test_a_manifest_of_another_format_is_refused() -> None:
    data = dataclasses.replace(MANIFEST, format=3).encode()
    with pytest.raises(ValueError, match="this version reads formats 1 and 2"):
        Manifest.decode(data)


def test_the_files_of_a_state_are_found_in_the_order_of_the_ranks() -> None:
    names = ["model-rank-00001.safetensors", "ema.safetensors", "model-rank-00000.safetensors", "state.json"]
    files = tuple(FileEntry(name=name, bytes=1, sha256=name[:1] * 64) for name in names)
    found = dataclasses.replace(MANIFEST, files=files).tensor_files
    assert {state: [file.name for file in of] for state, of in found.items()} == {
        "ema": ["ema.safetensors"],
        "model": [part_file("model", 0), part_file("model", 1)],
    }


@given(
    scale=finite,
    tracker=st.integers(0, 10**6),
    extra=st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | finite | st.text()),
)
def test_the_loop_state_survives_encoding_bit_for_bit(scale: float, tracker: int, extra: dict[str, object]) -> None:
    state = LoopState(
        progress=progress(57), optimizer="AdamW", precision={"scale": scale, "tracker": tracker}, extra=extra
    )
    back = LoopState.decode(state.encode())
    assert back == state
    assert math.copysign(1, back.precision["scale"]) == math.copysign(1, scale)
    assert isinstance(back.precision["tracker"], int)


def test_a_loop_state_with_a_missing_field_or_a_value_that_is_not_json_is_refused() -> None:
    state = LoopState(progress=progress(1), optimizer="SGD", precision={}, extra={})
    record = json.loads(state.encode())
    del record["progress"]["samples"]
    with pytest.raises(ValueError, match="samples"):
        LoopState.decode(json.dumps(record).encode())
    with pytest.raises(TypeError, match="not JSON serializable"):
        dataclasses.replace(state, extra={"device": object()}).encode()


metrics_by_step = st.dictionaries(st.integers(0, 1000), st.none() | st.floats(), max_size=30)
rules = st.builds(Retention, keep_last=st.integers(1, 5), keep_best=st.integers(0, 5), higher_is_better=st.booleans())


@given(metrics_by_step, rules)
def test_the_newest_and_no_more_than_configured_are_kept(metrics: dict[int, float | None], rule: Retention) -> None:
    kept = rule.retained(metrics)
    assert set(sorted(metrics)[-rule.keep_last :]) <= kept <= metrics.keys()
    assert len(kept) <= rule.keep_last + rule.keep_best
    assert rule.retained({step: metrics[step] for step in kept}) == kept


@given(metrics_by_step, rules)
def test_no_dropped_checkpoint_is_better_than_a_kept_one(metrics: dict[int, float | None], rule: Retention) -> None:
    kept = rule.retained(metrics)
    sign = 1 if rule.higher_is_better else -1

    def rank(steps: set[int]) -> list[float]:
        values = (metrics[step] for step in steps)
        return sorted((sign * v for v in values if v is not None and not math.isnan(v)), reverse=True)

    best_kept, dropped = rank(set(kept))[: rule.keep_best], rank(set(metrics) - kept)
    assert not dropped or len(best_kept) == rule.keep_best
    assert not dropped or not best_kept or dropped[0] <= best_kept[-1]


def test_of_equal_metrics_the_earlier_step_is_kept_and_a_rule_that_would_drop_the_newest_refused() -> None:
    rule = Retention(keep_last=1, keep_best=1, higher_is_better=True)
    assert rule.retained({10: 0.9, 20: 0.9, 30: 0.1}) == {10, 30}
    with pytest.raises(ValueError, match="keep_last=0"):
        Retention(keep_last=0, keep_best=1, higher_is_better=True)


def test_the_best_metric_determines_the_ranking() -> None:
    settings = CheckpointSettings(keep_last=1, keep_best=1)
    for higher_is_better, best in ((True, 20), (False, 10)):
        rule = Retention.of(settings, higher_is_better=higher_is_better)
        assert rule.retained({10: 0.1, 20: 0.9, 30: 0.5}) == {best, 30}
