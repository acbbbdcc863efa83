"""Models by name: what is found, what is refused and with which words, and factories of one's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from training.config.schema import ModelSettings, OptionValue
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models import registry as models
from training.models.mlp import mlp
from training.models.options import MlpOptions

DIGITS = SampleSpec(shape=(1, 8, 8), classes=10)

OWN_MODULE = """
from torch import nn

ANSWER = 42

def linear(spec, *, bias=True):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, spec.classes, bias=bias))

def returns_a_list(spec):
    return [nn.Linear(1, 1)]

def fails(spec):
    raise RuntimeError("the factory's own defect")
"""


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a module `nets` of factories; yields its name."""
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(OWN_MODULE)
    (package / "broken.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_package"
    for name in [name for name in sys.modules if name.split(".")[0] == "own_package"]:
        del sys.modules[name]


def test_names_are_sorted_and_every_one_is_found() -> None:
    assert list(models.names()) == sorted(models.names())
    assert [models.find(name).name for name in models.names()] == list(models.names())


@pytest.mark.parametrize("name", models.names())
def test_every_model_builds_with_its_defaults(name: str) -> None:
    with torch.device("meta"):
        model = models.build(ModelSettings(name=name), SampleSpec(shape=(3, 32, 32), classes=7))
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 7)


def test_options_reach_the_model() -> None:
    model = models.build(ModelSettings(name="mlp", options={"hidden": [3, 5], "dropout": 0.5}), DIGITS)
    assert [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)] == [
        (64, 3),
        (3, 5),
        (5, 10),
    ]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]


def test_weights_are_a_function_of_torch_s_seed() -> None:
    torch.manual_seed(3)
    first = models.build(ModelSettings(name="simple_cnn"), DIGITS).state_dict()
    torch.manual_seed(3)
    second = models.build(ModelSettings(name="simple_cnn"), DIGITS).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("name", "options", "message", "remedy"),
    [
        ("resnet81", {}, "model.name=resnet81 is no model", "did you mean resnet18? models: mlp, resnet101,"),
        ("transformer", {}, "model.name=transformer is no model", "models: mlp,"),
        (
            "mlp",
            {"hiden": [8]},
            "model.options.hiden: no such setting\n    remedy: did you mean hidden?",
            "options of model mlp",
        ),
        (
            "mlp",
            {"hidden": [8, 0]},
            "model.options.hidden.1 = 0: must be greater than 0",
            "hidden (default (512,))",
        ),
        ("mlp", {"dropout": 1.0}, "model.options.dropout = 1.0: must be less than 1", "options of model mlp:"),
        ("resnet18", {"stem": "big"}, "model.options.stem = big: must be one of imagenet, cifar", "full size"),
        (":linear", {}, "model.name=:linear is no import path", "write package.module:factory"),
        ("os:", {}, "model.name=os: is no import path", "write package.module:factory"),
        ("no_such_package.nets:f", {}, "cannot be imported: No module named 'no_such_package'", "install the package"),
        ("os.nets:f", {}, "cannot be imported: ", "correct the path"),
        ("no_such_module:f", {}, "cannot be imported: there is no module no_such_module", "correct the path"),
    ],
)
def test_wrong_settings_are_refused_with_value_rule_and_remedy(
    name: str, options: dict[str, OptionValue], message: str, remedy: str
) -> None:
    settings = ModelSettings(name=name, options=options)
    with pytest.raises(SettingsError) as refusal:
        models.validate(settings)
    assert message in refusal.value.args[0]
    assert remedy in refusal.value.remedy
    with pytest.raises(SettingsError):
        models.build(settings, DIGITS)


@pytest.mark.parametrize("name", [name for name in models.names() if name != "mlp"])
def test_a_model_of_images_refuses_vectors(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"model.name={name} reads images .* shape \(784,\)"):
        models.build(ModelSettings(name=name), SampleSpec(shape=(784,), classes=10))


def test_a_factory_of_one_s_own_gets_the_samples_and_its_options(own_package: str) -> None:
    model = models.build(ModelSettings(name=f"{own_package}.nets:linear", options={"bias": False}), DIGITS)
    assert [tuple(p.shape) for p in model.parameters()] == [(10, 64)]


def test_validating_a_factory_of_one_s_own_does_not_import_its_module(own_package: str) -> None:
    models.validate(ModelSettings(name=f"{own_package}.broken:anything"))
    assert f"{own_package}.broken" not in sys.modules


@pytest.mark.parametrize(
    ("factory", "options", "message", "remedy"),
    [
        ("liner", {}, "module own_package.nets has no liner", "did you mean linear?"),
        ("ANSWER", {}, "ANSWER is a int and cannot be called", "name a function"),
        ("linear", {"biass": True}, "model.options={'biass': True}: the factory does not take them", "bias=True"),
        ("returns_a_list", {}, "returned list", "a factory returns a torch.nn.Module"),
    ],
)
def test_a_factory_that_does_not_serve_is_refused(
    own_package: str, factory: str, options: dict[str, OptionValue], message: str, remedy: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        models.build(ModelSettings(name=f"{own_package}.nets:{factory}", options=options), DIGITS)
    assert message in refusal.value.args[0]
    assert remedy in refusal.value.remedy


def test_defects_inside_a_factory_keep_their_traceback(own_package: str) -> None:
    with pytest.raises(RuntimeError, match="the factory's own defect"):
        models.build(ModelSettings(name=f"{own_package}.nets:fails"), DIGITS)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        models.build(ModelSettings(name=f"{own_package}.broken:anything"), DIGITS)


def test_validating_imports_nothing_heavy() -> None:
    program = (
        "import sys; from training.models import registry as models; from training.config.schema import ModelSettings\n"
        "models.validate(ModelSettings(name='resnet50', options={'stem': 'cifar'}))\n"
        "print(sorted({'torch', 'numpy', 'ray', 'sklearn'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"


def test_the_mlp_of_the_book_has_407050_parameters() -> None:
    model = mlp(SampleSpec(shape=(1, 28, 28), classes=10), MlpOptions())
    assert sum(p.numel() for p in model.parameters()) == 407_050


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    model = mlp(DIGITS, MlpOptions(hidden=()))
    inputs = torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(model(inputs) + model(-inputs), 2 * model(torch.zeros(4, 1, 8, 8)))
