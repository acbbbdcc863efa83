"""Models by name, error messages, and factories of your own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from training.config.schema import ModelSettings, OptionValue
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.mlp import mlp
from training.models.options import MlpOptions
from training.models.registry import MODELS, build_model, validate

DIGITS = SampleSpec(shape=(1, 8, 8), outputs=10)

TOKEN_MODELS = ("rnn", "transformer")

OWN_MODULE = """
from torch import nn

ANSWER = 42

def linear(spec, *, bias=True):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, spec.outputs, bias=bias))

def returns_a_list(spec):
    return [nn.Linear(1, 1)]

def fails(spec):
    raise RuntimeError("raised by the factory")
"""


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a module `nets` of factories; yields its name."""
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(OWN_MODULE)
    (package / "broken.py").write_text("import no_such_library as anything")
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_package"
    for name in [name for name in sys.modules if name.split(".")[0] == "own_package"]:
        del sys.modules[name]


def test_every_model_of_images_builds_with_its_default_options_and_rejects_vectors_and_tokens() -> None:
    tokens = SampleSpec(shape=(12,), outputs=50, vocabulary=50)
    for name in set(MODELS.names) - set(TOKEN_MODELS):
        with torch.device("meta"):
            model = build_model(ModelSettings(name=name), SampleSpec(shape=(3, 32, 32), outputs=7))
        assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 7)
        with pytest.raises(SettingsError, match=f"model.name={name} expects"):
            build_model(ModelSettings(name=name), tokens)
        if name != "mlp":
            with pytest.raises(SettingsError, match=rf"model.name={name} expects images .* shape \(784,\)"):
                build_model(ModelSettings(name=name), SampleSpec(shape=(784,), outputs=10))


def test_a_transformer_returns_logits_for_each_position_or_for_the_sample() -> None:
    for is_sequence in (True, False):
        spec = SampleSpec(shape=(12,), outputs=50, vocabulary=50, is_sequence=is_sequence)
        with torch.device("meta"):
            model = build_model(ModelSettings(name="transformer"), spec)
        assert model(torch.zeros(2, 12, dtype=torch.int64, device="meta")).shape == (2, *spec.output_shape)


def test_a_language_model_sees_no_later_token() -> None:
    spec = SampleSpec(shape=(12,), outputs=50, vocabulary=50, is_sequence=True)
    model = build_model(ModelSettings(name="transformer"), spec).eval()
    tokens = torch.randint(0, 50, (3, 12))
    changed = tokens.clone()
    changed[:, 7:] = 0
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :7], before[:, :7])
    assert not torch.equal(after[:, 7:], before[:, 7:])


def test_options_reach_the_model() -> None:
    model = build_model(ModelSettings(name="mlp", options={"hidden": [3, 5], "dropout": 0.5}), DIGITS)
    assert [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)] == [
        (64, 3),
        (3, 5),
        (5, 10),
    ]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    model = build_model(ModelSettings(name="simple_cnn", options={"width": 3, "dropout": 0.25}), DIGITS)
    assert [m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)] == [3, 6, 12]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.25]


def test_an_invalid_setting_is_rejected_with_value_rule_and_remedy() -> None:
    cases: list[tuple[str, dict[str, OptionValue], str, str]] = [
        ("resnet81", {}, "model.name=resnet81: unknown model", "did you mean resnet18? models: mlp, resnet101,"),
        ("transformer", {"width": 30}, "width=30 must be a multiple of heads=4", "options of model transformer:"),
        ("mlp", {"hiden": [8]}, "model.options.hiden: no such setting", "did you mean hidden?"),
        ("mlp", {"hidden": [8, 0]}, "model.options.hidden.1 = 0: must be greater than 0", "hidden (default (512,))"),
        ("resnet18", {"stem": "big"}, "model.options.stem = big: must be one of imagenet, cifar", "full size"),
        (":linear", {}, "model.name=:linear is not an import path", "write package.module:factory"),
        ("no_such_package.nets:f", {}, "cannot be imported: no module named 'no_such_package'", "install the package"),
        ("os.nets:f", {}, "cannot be imported: ", "correct the path"),
    ]
    for name, options, message, remedy in cases:
        settings = ModelSettings(name=name, options=options)
        with pytest.raises(SettingsError) as raised:
            validate(settings)
        assert message in raised.value.args[0]
        assert remedy in raised.value.remedy
        with pytest.raises(SettingsError):
            build_model(settings, DIGITS)


def test_an_own_factory_gets_the_spec_and_its_options_and_is_not_imported_before(own_package: str) -> None:
    validate(ModelSettings(name=f"{own_package}.broken:anything"))
    assert f"{own_package}.broken" not in sys.modules
    model = build_model(ModelSettings(name=f"{own_package}.nets:linear", options={"bias": False}), DIGITS)
    assert [tuple(p.shape) for p in model.parameters()] == [(10, 64)]


def test_an_unusable_own_factory_is_rejected_and_its_own_errors_pass(own_package: str) -> None:
    accept = "model.options={'biass': True}: the factory does not accept them"
    cases: list[tuple[str, dict[str, OptionValue], str, str]] = [
        ("liner", {}, "module own_package.nets has no attribute 'liner'", "did you mean linear?"),
        ("ANSWER", {}, "ANSWER is not callable, it is of type int", "name a function"),
        ("linear", {"biass": True}, accept, "bias=True"),
        ("returns_a_list", {}, "returned list", "the factory must return a torch.nn.Module"),
    ]
    for factory, options, message, remedy in cases:
        with pytest.raises(SettingsError) as raised:
            build_model(ModelSettings(name=f"{own_package}.nets:{factory}", options=options), DIGITS)
        assert message in raised.value.args[0]
        assert remedy in raised.value.remedy
    with pytest.raises(RuntimeError, match="raised by the factory"):
        build_model(ModelSettings(name=f"{own_package}.nets:fails"), DIGITS)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        build_model(ModelSettings(name=f"{own_package}.broken:anything"), DIGITS)


def test_an_mlp_is_linear_only_without_hidden_layers_and_has_the_published_size() -> None:
    for hidden, is_linear in (((), True), ((16,), False)):
        model = mlp(DIGITS, MlpOptions(hidden=hidden))
        inputs = torch.randn(4, 1, 8, 8)
        sums = model(inputs) + model(-inputs)
        assert torch.allclose(sums, 2 * model(torch.zeros(4, 1, 8, 8)), atol=1e-5) is is_linear
    default = mlp(SampleSpec(shape=(1, 28, 28), outputs=10), MlpOptions())
    assert sum(p.numel() for p in default.parameters()) == 407_050
