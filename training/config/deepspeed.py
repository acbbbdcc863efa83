"""A DeepSpeed configuration (`strategy.deepspeed`): read as users have it, checked against the settings, and filled from them.

DeepSpeed's file says some things that the settings say too: batches, clipping, the optimizer, the learning rate, number formats, the
stage. There the file may leave the key out, say "auto" as in the Hugging Face Trainer's files, or say what the settings say. Anything else
is refused, with both values. A parameter that an optimizer or a scheduler of the file leaves out is DeepSpeed's default, as it is there.
The rest, e.g. the sizes of buckets, is DeepSpeed's own and reaches it as it is; "auto" is its default there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

if TYPE_CHECKING:
    from training.config.schema import TrainingSettings

Configuration = dict[str, JsonValue]
"""The content of a DeepSpeed configuration."""

STAGES: Final = {"zero1": 1, "zero2": 2, "zero3": 3}
"""The stage of ZeRO by the name of the strategy."""

_AUTO: Final = "auto"
_PARAMS: Final = "scheduler.params"

_OWN_KEYS: Final = {
    "comms_logger",
    "communication_data_type",
    "data_types",
    "disable_allgather",
    "dump_state",
    "flops_profiler",
    "gradient_predivide_factor",
    "log_level",
    "memory_breakdown",
    "prescale_gradients",
    "seed",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_optimization",
}
"""What the file may have beside the keys that are compared with settings. It changes no step's result but by rounding."""

_ELSEWHERE: Final = {
    "activation_checkpointing": "set compute.activation_checkpointing",
    "amp": "set precision.mode",
    "comet": "set tracking",
    "csv_monitor": "set tracking",
    "tensorboard": "set tracking",
    "torch_autocast": "set precision.mode",
    "wandb": "set tracking",
    "zero_optimization.cpu_offload": "set strategy.offload",
    "zero_optimization.cpu_offload_param": "set strategy.offload",
}
"""Keys of which the platform has a setting of its own."""

_REFUSED_OF_ZERO: Final = {
    "cpu_offload",
    "cpu_offload_param",
    "round_robin_gradients",
    "zenflow",
    "zero_hpz_partition_size",
    "zero_quantized_gradients",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_weights",
}
"""Keys of `zero_optimization` that lay weights and optimizer state out in other ways than the checkpoints know."""

_SWITCHED_OFF: Final = {"null", "false", "1", json.dumps(_AUTO)}
"""Values, as JSON, with which these keys do nothing; the partition size of 1 is no partition."""

_SCHEDULES: Final = {"WarmupLR": "constant", "WarmupCosineLR": "cosine"}
"""DeepSpeed's schedulers that have a counterpart in schedule.name. Its `OneCycle` is made of straight lines, ours of cosines."""

_ADAM: Final[Mapping[str, JsonValue]] = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
DEFAULTS: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    "adam": _ADAM,
    "adamw": _ADAM,
    "sgd": {"lr": 1e-3, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    "warmuplr": {"warmup_min_lr": 0.0, "warmup_num_steps": 1000, "warmup_type": "log"},
    "warmupcosinelr": {
        "warmup_min_ratio": 0.0,
        "warmup_num_steps": 1000,
        "cos_min_ratio": 1e-4,
        "warmup_type": "log",
    },
}
"""What a parameter is that the file leaves out, by the type of its optimizer or scheduler in lower case (DeepSpeed 0.19.8: FusedAdam,
torch.optim.SGD, lr_schedules.py). The largest rate of `WarmupLR` is then the optimizer's."""


@dataclass(frozen=True)
class Expected:
    """A key of the file, the setting that says the same, and the value that it gives the key."""

    key: str
    setting: str
    value: JsonValue


def read(value: object) -> object:
    """The configuration of a setting: the content of the JSON file that it names, or what it is already.

    The content is what a run keeps: it resumes, or runs on a cluster, without the file.

    Raises:
        ValueError: the file cannot be read, or holds no JSON object.
    """
    if not isinstance(value, str | Path):
        return value
    try:
        content = json.loads(Path(value).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {error.strerror}; give the path of a DeepSpeed JSON file") from error
    except ValueError as error:
        raise ValueError(f"{value} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{value} holds a {type(content).__name__}, not a JSON object as DeepSpeed's configuration")
    return content


def check(settings: TrainingSettings) -> None:
    """Refuse a DeepSpeed configuration that contradicts the settings or that has what the platform does not support.

    Raises:
        ValueError: names each key with its value, that of the setting, and the remedy.
    """
    given = settings.strategy.deepspeed
    if given is None:
        return
    expected = list(_expected(settings))
    wrong = [*_unsupported(given, {one.key for one in expected}), *_conflicts(given, expected)]
    if wrong:
        raise ValueError(f"strategy.deepspeed: {'; '.join(wrong)}")


def engine_configuration(settings: TrainingSettings) -> Configuration:
    """What `deepspeed.initialize` gets: the file's own keys, and all that the settings say.

    The optimizer and the learning rate are left out. They are the platform's, on which ZeRO works.
    """
    strategy = settings.strategy
    own: dict[str, Any] = _without_auto(
        {key: one for key, one in (strategy.deepspeed or {}).items() if key in _OWN_KEYS}
    )
    zero: dict[str, Any] = {**own.get("zero_optimization", {}), "stage": STAGES[strategy.name]}
    if strategy.offload:
        for part in _offloaded(settings):
            zero[part] = {**zero.get(part, {}), "device": "cpu"}
    return {
        **own,
        "train_batch_size": settings.loop.global_batch,
        "train_micro_batch_size_per_gpu": _micro_batch(settings),
        "gradient_accumulation_steps": settings.loop.accumulation,
        "gradient_clipping": settings.loop.clip_norm or 0.0,
        # With check_grad_overflow a step whose gradient is not finite is skipped, as in float32.
        "bf16": {"enabled": strategy.parameters == "bf16", "check_grad_overflow": True},
        "zero_optimization": zero,
        # SGD is on no list of DeepSpeed's, but updates each weight by itself, which is all that ZeRO needs.
        "zero_allow_untested_optimizer": True,
        # torch's fused kernels run on CPUs too; DeepSpeed's own would be compiled when the run starts.
        "zero_force_ds_cpu_optimizer": False,
    }


def _micro_batch(settings: TrainingSettings) -> int:
    return settings.loop.global_batch // (settings.scale.workers * settings.loop.accumulation)


def _offloaded(settings: TrainingSettings) -> tuple[str, ...]:
    """The parts that `strategy.offload` keeps in host memory."""
    return ("offload_optimizer", "offload_param") if settings.strategy.name == "zero3" else ("offload_optimizer",)


def _expected(settings: TrainingSettings) -> Iterator[Expected]:
    strategy, loop, precision = settings.strategy, settings.loop, settings.precision.mode
    yield Expected("train_batch_size", "loop.global_batch", loop.global_batch)
    yield Expected(
        "train_micro_batch_size_per_gpu",
        "loop.global_batch / scale.workers / loop.accumulation",
        _micro_batch(settings),
    )
    yield Expected("gradient_accumulation_steps", "loop.accumulation", loop.accumulation)
    yield Expected("gradient_clipping", "loop.clip_norm", loop.clip_norm or 0.0)
    yield Expected("gradient_allreduce_op", "the mean over the global batch", "mean")
    yield Expected("zero_optimization.stage", f"strategy.name={strategy.name}", STAGES[strategy.name])
    for part in ("offload_optimizer", "offload_param"):
        device = "cpu" if strategy.offload and part in _offloaded(settings) else "none"
        yield Expected(f"zero_optimization.{part}.device", f"strategy.offload={str(strategy.offload).lower()}", device)
    yield Expected("zero_optimization.offload_optimizer.ratio", "all of it", 1.0)
    yield Expected("zero_optimization.offload_optimizer.super_offload", "torch's optimizer", value=False)
    yield Expected("zero_force_ds_cpu_optimizer", "torch's optimizer", value=False)
    yield Expected("fp16.enabled", f"precision.mode={precision}", value=False)
    for name in ("bf16", "bfloat16"):
        setting = f"strategy.parameters={strategy.parameters}"
        yield Expected(f"{name}.enabled", setting, strategy.parameters == "bf16")
    yield from _expected_optimizer(settings)
    yield from _expected_schedule(settings)


def _expected_optimizer(settings: TrainingSettings) -> Iterator[Expected]:
    optimizer = settings.optimizer
    scale = 1.0 if optimizer.base_batch is None else settings.loop.global_batch / optimizer.base_batch
    yield Expected("optimizer.type", "optimizer.name", optimizer.name)
    params: tuple[tuple[str, str, JsonValue], ...] = (
        ("lr", "optimizer.learning_rate", optimizer.learning_rate * scale),
        ("weight_decay", "optimizer.weight_decay", optimizer.weight_decay),
        ("betas", "optimizer.betas", list(optimizer.betas)),
        ("eps", "torch's default", 1e-8),
        ("momentum", "optimizer.momentum", optimizer.momentum),
        ("nesterov", "optimizer.nesterov", optimizer.nesterov),
        ("adam_w_mode", f"optimizer.name={optimizer.name}", optimizer.name == "adamw"),
        ("torch_adam", "torch's optimizer", True),
    )
    for key, setting, value in params:
        yield Expected(f"optimizer.params.{key}", setting, value)


def _expected_schedule(settings: TrainingSettings) -> Iterator[Expected]:
    schedule = settings.schedule
    yield Expected("scheduler.type", "schedule.name", schedule.name)
    for key, setting, value in (
        ("warmup_num_steps", "schedule.warmup_steps", schedule.warmup_steps),
        ("warmup_max_lr", "optimizer.learning_rate", settings.optimizer.learning_rate),
        ("warmup_min_lr", "a warm-up from 0", 0.0),
        ("warmup_min_ratio", "a warm-up from 0", 0.0),
        ("warmup_type", "a linear warm-up", "linear"),
        ("cos_min_ratio", "schedule.final_fraction", schedule.final_fraction),
        ("total_num_steps", "loop.max_steps", settings.loop.max_steps),
    ):
        yield Expected(f"{_PARAMS}.{key}", setting, value)


def _unsupported(given: Mapping[str, JsonValue], compared: set[str]) -> Iterator[str]:
    known = _OWN_KEYS | {key.partition(".")[0] for key in compared}
    for key in given:
        if key not in known:
            yield _refusal(key)
    zero = given.get("zero_optimization")
    for key, value in zero.items() if isinstance(zero, dict) else ():
        if key in _REFUSED_OF_ZERO and json.dumps(value) not in _SWITCHED_OFF:
            yield _refusal(f"zero_optimization.{key}")
    for section in ("optimizer.params", "scheduler.params"):
        for key, value in _options(given, section).items():
            if f"{section}.{key}" not in compared and value != _AUTO:
                yield _refusal(f"{section}.{key}")


def _options(given: Mapping[str, JsonValue], section: str) -> dict[str, JsonValue]:
    found = _lookup(given, section)
    return found if isinstance(found, dict) else {}


def _refusal(key: str) -> str:
    advice = f", and {_ELSEWHERE[key]}" if key in _ELSEWHERE else ""
    return f"{key} is not supported; take it out of the file{advice}"


def _conflicts(given: Mapping[str, JsonValue], expected: list[Expected]) -> Iterator[str]:
    defaults = dict(_defaults(given))
    if not any(one.key == f"{_PARAMS}.warmup_num_steps" and one.value for one in expected):
        defaults.pop(f"{_PARAMS}.warmup_type", None)  # of a warm-up without steps
    for one in expected:
        theirs = _lookup(given, one.key)
        is_left_out = theirs is None and one.key in defaults
        if is_left_out:
            theirs = defaults[one.key]
        if theirs is None or theirs == _AUTO:
            continue
        if one.key == "optimizer.type":
            theirs = _optimizer_name(given, theirs)
        elif one.key == "scheduler.type":
            theirs = _SCHEDULES.get(str(theirs), theirs)
        if not _equal(theirs, one.value):
            ours = json.dumps(one.value)
            setting = one.setting if "=" in one.setting else f"{one.setting}={ours}"
            absent = " (DeepSpeed's default, because the file leaves it out)" if is_left_out else ""
            yield f'{one.key}={json.dumps(theirs)}{absent} contradicts {setting}; write {ours} or "auto", or change the setting'


def _defaults(given: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """The parameters of the file's optimizer and scheduler, by their keys, that count where it leaves them out."""
    for section in ("optimizer", "scheduler"):
        named = DEFAULTS.get(str(_lookup(given, f"{section}.type")).lower(), {})
        for key, value in named.items():
            yield f"{section}.params.{key}", value


def _optimizer_name(given: Mapping[str, JsonValue], theirs: JsonValue) -> JsonValue:
    """DeepSpeed's type as a value of optimizer.name. Its `Adam` is AdamW, unless `adam_w_mode` is false."""
    name = str(theirs).lower()
    if name == "adam" and _lookup(given, "optimizer.params.adam_w_mode") is not False:
        return "adamw"
    return name


def _lookup(given: Mapping[str, JsonValue], key: str) -> JsonValue:
    """The value of a nested key; None if there is none."""
    found: JsonValue = dict(given)
    for part in key.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _equal(theirs: JsonValue, ours: JsonValue) -> bool:
    """Whether two JSON values are the same; 1 and 1.0 are, 1 and true are not."""
    return theirs == ours and isinstance(theirs, bool) == isinstance(ours, bool)


def _without_auto(tree: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if value != _AUTO}
    return {key: _without_auto(value) if isinstance(value, dict) else value for key, value in kept.items()}
