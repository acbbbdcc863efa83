"""A DeepSpeed configuration is accepted as users have it, and refused where it contradicts the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.config.refused import assert_refused, refusal
from training.config.deepspeed import engine_configuration
from training.config.load import load_settings
from training.config.schema import TrainingSettings

HUGGING_FACE: dict[str, Any] = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {
            "warmup_min_ratio": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
            "cos_min_ratio": "auto",
        },
    },
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "none", "pin_memory": True},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": "auto",
        "allgather_bucket_size": 2e8,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
"""The keys of the Hugging Face Trainer's example for stage 2."""


def settings(file: dict[str, Any], **sections: dict[str, Any]) -> TrainingSettings:
    strategy = {"name": "zero2", "deepspeed": file, **sections.pop("strategy", {})}
    return TrainingSettings.model_validate({"strategy": strategy, **sections})


def test_auto_is_filled_from_the_settings_and_the_rest_reaches_deepspeed() -> None:
    wanted = engine_configuration(
        settings(HUGGING_FACE, loop={"global_batch": 48, "accumulation": 3, "clip_norm": 0.5})
    )
    assert wanted == {
        "train_batch_size": 48,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 3,
        "gradient_clipping": 0.5,
        "bf16": {"enabled": False, "check_grad_overflow": True},
        "zero_optimization": {
            "stage": 2,
            "offload_optimizer": {"device": "none", "pin_memory": True},
            "overlap_comm": True,
            "contiguous_gradients": True,
            "allgather_bucket_size": 2e8,
        },
        "steps_per_print": 2000,
        "wall_clock_breakdown": False,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def test_without_a_file_the_settings_are_the_whole_configuration() -> None:
    wanted = engine_configuration(TrainingSettings.model_validate({"strategy": {"name": "zero3"}}))
    assert wanted["zero_optimization"] == {"stage": 3}
    assert wanted["train_batch_size"] == TrainingSettings().loop.global_batch


def test_offload_keeps_the_state_of_a_stage_in_host_memory() -> None:
    file = {"zero_optimization": {"stage": "auto", "offload_optimizer": {"device": "cpu", "pin_memory": False}}}
    for name, parts in (("zero2", {"optimizer"}), ("zero3", {"optimizer", "param"})):
        wanted = engine_configuration(settings(file, strategy={"name": name, "offload": True}, scale={"gpu": True}))
        zero = wanted["zero_optimization"]
        assert isinstance(zero, dict)
        on_host = {key: value for key, value in zero.items() if key.startswith("offload_")}
        assert on_host.keys() == {f"offload_{part}" for part in parts}
        assert {value["device"] for value in on_host.values()} == {"cpu"}  # type: ignore[index,call-overload]
        assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": False}


def test_values_that_the_settings_say_too_are_accepted() -> None:
    file = {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 32,
        "gradient_clipping": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
        "zero_optimization": {"stage": 2, "zero_quantized_weights": False, "zero_hpz_partition_size": 1},
        "fp16": {"enabled": False},
    }
    assert settings(file).strategy.deepspeed == file


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"train_batch_size": 32}, r"train_batch_size=32 contradicts loop\.global_batch=64; write 64 or \"auto\", or change the setting"),
        ({"gradient_clipping": 0.5}, r"gradient_clipping=0\.5 contradicts loop\.clip_norm=1\.0"),
        ({"zero_optimization": {"stage": 3}}, r"stage=3 contradicts strategy\.name=zero2"),
        ({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}, r'device="nvme" contradicts strategy\.offload=false'),
        ({"optimizer": {"type": "Lamb"}}, r'optimizer\.type="lamb" contradicts optimizer\.name="adamw"'),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}, r"lr=1e-05 contradicts optimizer\.learning_rate=0\.003"),
        ({"optimizer": {"type": "AdamW", "params": {"amsgrad": True}}}, r"optimizer\.params\.amsgrad is not supported"),
        ({"scheduler": {"type": "WarmupDecayLR"}}, r'scheduler\.type="WarmupDecayLR" contradicts schedule\.name="cosine"'),
        ({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 9}}}, r"contradicts schedule\.warmup_steps=0"),
        ({"fp16": {"enabled": True}}, r"fp16\.enabled=true contradicts precision\.mode=fp32"),
        ({"bf16": {"enabled": True}}, r"bf16\.enabled=true contradicts strategy\.parameters=fp32"),
        ({"gradient_allreduce_op": "sum"}, r'contradicts the mean over the global batch="mean"'),
        ({"wandb": {"enabled": True}}, r"wandb is not supported; take it out of the file, and set tracking"),
        ({"zero_optimization": {"zero_hpz_partition_size": 8}}, r"zero_optimization\.zero_hpz_partition_size is not supported"),
        ({"zero_optimization": {"cpu_offload": True}}, r"cpu_offload is not supported; .* set strategy\.offload"),
        ({"train_batch_sise": 64}, r"train_batch_sise is not supported"),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_with_both_values(file: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(file)


@pytest.mark.parametrize(
    ("section", "kind", "params", "said"),
    [
        ("scheduler", "WarmupLR", {"warmup_num_steps": 100}, r'warmup_type="log" \(DeepSpeed\'s default'),
        ("scheduler", "WarmupLR", {"warmup_type": "linear"}, r"warmup_num_steps=1000 \(DeepSpeed\'s default"),
        ("scheduler", "WarmupLR", {"warmup_num_steps": 100, "warmup_type": "auto"}, ""),
        ("optimizer", "AdamW", {"lr": 3e-3}, r"weight_decay=0\.0 \(DeepSpeed\'s default.* contradicts optimizer\.weight_decay=0\.01"),
        ("optimizer", "AdamW", {"lr": 3e-3, "weight_decay": 0.01}, ""),
    ],
)  # fmt: skip
def test_what_an_optimizer_or_a_scheduler_leaves_out_is_deepspeed_s_default(
    section: str, kind: str, params: dict[str, Any], said: str
) -> None:
    file = {section: {"type": kind, "params": params}}
    schedule = {"name": "constant", "warmup_steps": 100}
    if said:
        with pytest.raises(ValidationError, match=said):
            settings(file, schedule=schedule)
    else:
        settings(file, schedule=schedule)


def test_all_contradictions_are_named_at_once() -> None:
    with pytest.raises(ValidationError, match=r"train_batch_size=32.*; gradient_clipping=0\.5"):
        settings({"train_batch_size": 32, "gradient_clipping": 0.5})


def test_the_content_of_a_file_becomes_part_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(HUGGING_FACE))
    overrides = ["strategy.name=zero2", f"strategy.deepspeed={file}"]
    loaded = load_settings(overrides=overrides, environment={})
    file.unlink()
    assert loaded.strategy.deepspeed == HUGGING_FACE
    assert TrainingSettings.model_validate(loaded.model_dump(mode="json")) == loaded


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    overrides = ["strategy.name=zero2", f"strategy.deepspeed={file}"]
    assert "cannot be read" in refusal(*overrides)
    for text, message in (("{", "is not JSON"), ("[1]", "holds a list, not a JSON object")):
        file.write_text(text)
        assert message in refusal(*overrides)


def test_a_combination_that_cannot_work_is_refused() -> None:
    only = "is a setting of name="
    cases = {
        "strategy.name=ddp strategy.deepspeed={}": f"deepspeed {only}zero1, zero2 and zero3, got name=ddp",
        "strategy.reshard_after_forward=false": f"reshard_after_forward=false {only}fsdp2 and hsdp",
        "scale.workers=1": "strategy.name=zero2 … needs scale.workers=2 or more; use strategy.name=ddp",
        "strategy.offload=true": "needs scale.gpu=true",
        "strategy.name=zero3 ema.decay=0.9": "use zero2 with parameters=fp32, or fsdp2",
        "precision.mode=fp16 scale.gpu=true": "no loss scaling under strategy.name=zero2",
    }
    assert_refused(cases, "strategy.name=zero2")
