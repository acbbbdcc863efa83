"""Search spaces: conditions, grids and random draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tune.spaces import Axes, space_of
from training.config.schema import OptionValue
from training.errors import SettingsError
from tune.space.axes import Choice, Condition, Constant, Continuous, Integers
from tune.space.space import RandomDraw, Space


def refusal(axes: Axes) -> str:
    with pytest.raises(SettingsError) as caught:
        space_of(axes)
    return str(caught.value)


OPTIMIZERS: dict[str, dict[str, object]] = {
    "momentum": {"choice": [0.5, 0.9], "when": {"name": "sgd"}},
    "nesterov": {"choice": [True, False], "when": {"momentum": 0.9}},
    "name": {"choice": ["sgd", "adam"]},
    "precision": {"value": "float32"},
}


def test_a_grid_has_every_combination_of_axes_that_apply_once() -> None:
    space = space_of(OPTIMIZERS)
    order = list(space.axes)
    assert order.index("name") < order.index("momentum") < order.index("nesterov")
    assert space.needs("nesterov") == {"momentum": (0.9,), "name": ("sgd",)}
    assert space.needs("name") == {}
    found = list(space.grid())
    assert {one["precision"] for one in found} == {"float32"}
    assert [{key: one[key] for key in sorted(one) if key != "precision"} for one in found] == [
        {"momentum": 0.5, "name": "sgd"},
        {"momentum": 0.9, "name": "sgd", "nesterov": True},
        {"momentum": 0.9, "name": "sgd", "nesterov": False},
        {"name": "adam"},
    ]


def test_a_condition_may_name_several_values_or_a_list_of_an_axis_of_lists() -> None:
    space = space_of(
        {
            "name": {"choice": ["sgd", "adam", "adamw"]},
            "decay": {"choice": [0.1], "when": {"name": ["adam", "adamw"]}},
            "flag": {"choice": [True, False, None]},
            "gain": {"choice": [1], "when": {"flag": [True, None]}},
        }
    )
    found = list(space.grid())
    assert {str(one["name"]) for one in found if "decay" in one} == {"adam", "adamw"}
    assert [one["flag"] for one in found if "gain" in one] == [True, None] * 3
    lists = space_of(
        {"hidden": {"choice": [[8], [8, 16]]}, "dropout": {"choice": [0.1], "when": {"hidden": [[8, 16]]}}}
    )
    assert list(lists.grid()) == [{"hidden": [8]}, {"hidden": [8, 16], "dropout": 0.1}]


def test_a_condition_that_never_holds_is_refused() -> None:
    cases: list[tuple[Mapping[str, object], object, str]] = [
        ({"choice": ["sgd", "adam"]}, "adamw", "sgd or adam"),
        ({"value": None}, 1, "null"),
        ({"integer": [1, 9], "step": 2}, 2, "1 to 9 in steps of 2"),
        ({"integer": [1, 9]}, True, "1 to 9"),
        ({"integer": [1, 9]}, "three", "1 to 9"),
        ({"uniform": [0, 1], "step": 0.5}, 0.7, "0.0 to 1.0 in steps of 0.5"),
    ]
    for other, value, values in cases:
        message = refusal({"other": other, "axis": {"choice": [1, 2], "when": {"other": value}}})
        assert message.startswith("search.space.axis.when.other = ")
        assert f"other never has this value\n  remedy: values of other: {values}" in message
    real = refusal({"rate": {"log_uniform": [0.1, 1]}, "axis": {"choice": [1, 2], "when": {"rate": 0.5}}})
    assert "rate is a real number, which is almost never exactly that" in real
    near = refusal({"name": {"choice": ["sgd"]}, "momentum": {"uniform": [0, 1], "when": {"nam": "sgd"}}})
    assert near == "search.space.momentum.when.nam = sgd: no such axis\n  remedy: did you mean name?"
    setting = refusal({"momentum": {"uniform": [0, 1], "when": {"optimizer.name": "sgd"}}})
    assert "remedy: add optimizer.name to the axes, or remove the condition" in setting


def test_conditions_that_contradict_or_need_each_other_are_refused() -> None:
    for names in ("a", "ab", "abc"):
        after = zip(names, names[1:] + names[0], strict=True)
        message = refusal({name: {"choice": [1, 2], "when": {other: 1}} for name, other in after})
        assert message.partition("need each other: ")[2].count(" -> ") == len(names)
    axes: Axes = {
        "name": {"choice": ["sgd", "adam"]},
        "nesterov": {"choice": [True, False], "when": {"name": "sgd"}},
        "gain": {"choice": [1, 2], "when": {"nesterov": True, "name": "adam"}},
    }
    never = "search.space.gain.when: never holds: name cannot be adam and sgd in one trial"
    assert refusal(axes).startswith(never)


def draws(axis: Choice | Integers | Continuous, count: int) -> list[float]:
    draw = RandomDraw("draws")
    found = [draw("key", axis) for _ in range(count)]
    assert all(isinstance(value, int | float) for value in found)
    return [float(value) for value in found if isinstance(value, int | float)]


def test_each_decade_of_a_logarithmic_axis_is_drawn_about_equally_often() -> None:
    for axis in (Continuous(1e-4, 1e-1, is_log=True), Integers(10, 10_000, is_log=True)):
        decades = Counter(min(int(math.log10(value / axis.low)), 2) for value in draws(axis, 3000))
        # Three standard deviations of a binomial distribution: 3 * sqrt(3000 * 1/3 * 2/3) = 77.
        assert all(abs(decades[decade] - 1000) < 90 for decade in range(3)), axis


def test_whole_numbers_of_a_short_logarithmic_axis_are_drawn_in_proportion_to_their_reciprocals() -> None:
    found = Counter(draws(Integers(1, 4, is_log=True), 4000))
    weights = {1: 12 / 25, 2: 6 / 25, 3: 4 / 25, 4: 3 / 25}
    assert all(abs(found[value] / 4000 - weight) < 0.05 for value, weight in weights.items())


def test_each_value_is_drawn_about_equally_often() -> None:
    for axis in (Choice((0, 1, 2, 3)), Integers(0, 3), Continuous(0.0, 1.5, step=0.5), Integers(2, 13, step=3)):
        found = Counter(draws(axis, 4000))
        assert set(found) == set(axis.grid())
        assert all(abs(count - 1000) < 110 for count in found.values()), axis
    quarters = Counter(int(value + 1) for value in draws(Continuous(-1.0, 3.0), 4000))
    assert all(abs(quarters[number] - 1000) < 110 for number in range(4))
    for large in (Integers(0, 10**12), Continuous(0.0, 1e6, step=1e-6)):  # without memory for all values
        assert 0 <= draws(large, 1)[0] <= 10**12


def test_equal_seeds_draw_equal_values_and_others_do_not() -> None:
    space = space_of({"rate": {"log_uniform": [1e-4, 1]}, "name": {"choice": ["a", "b", "c"]}})
    first, same, other = (RandomDraw(seed) for seed in ("0/1", "0/1", "0/2"))
    drawn = [space.draw(first) for _ in range(5)]
    assert drawn == [space.draw(same) for _ in range(5)]
    assert drawn != [space.draw(other) for _ in range(5)]


def test_values_of_another_space_do_not_hold() -> None:
    sgd = (Condition("name", ("sgd",)),)
    space = Space({"name": Choice(("sgd", "adam")), "momentum": Continuous(0.5, 0.9, when=sgd), "fixed": Constant(1)})
    assert space.holds({"name": "sgd", "momentum": 0.7, "fixed": 1})
    assert space.holds({"name": "adam", "fixed": 1})
    others: list[dict[str, OptionValue]] = [
        {"name": "sgd", "fixed": 1},
        {"name": "adam", "momentum": 0.7, "fixed": 1},
        {"name": "sgd", "momentum": 0.95, "fixed": 1},
        {"name": "sgd", "momentum": "high", "fixed": 1},
        {"name": "adam", "fixed": 2},
        {"name": "adam", "fixed": 1, "more": 1},
    ]
    assert not any(space.holds(values) for values in others)


numbers = st.floats(1e-6, 1e6).map(lambda value: float(f"{value:.6g}"))
plain_axes = st.one_of(
    st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)), min_size=1, max_size=5)
    .filter(lambda values: len({repr(value) for value in values}) == len(values))
    .map(lambda values: {"choice": values}),
    st.tuples(st.integers(-50, 50), st.integers(1, 99), st.integers(1, 9))
    .filter(lambda one: one[2] <= one[1])
    .map(lambda one: {"integer": [one[0], one[0] + one[1]], "step": one[2]}),
    st.tuples(st.integers(1, 50), st.integers(1, 999)).map(lambda one: {"integer": [one[0], sum(one)], "log": True}),
    st.lists(numbers, min_size=2, max_size=2, unique=True).map(lambda bounds: {"uniform": sorted(bounds)}),
    st.lists(numbers, min_size=2, max_size=2, unique=True).map(lambda bounds: {"log_uniform": sorted(bounds)}),
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.sampled_from([0.1, 0.25, 1e-3])).map(
        lambda one: {"uniform": [one[0], one[0] + one[1]], "step": one[2]}
    ),
    st.integers().map(lambda value: {"value": value}),
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Spaces whose axes may depend on the ones before them."""
    axes: dict[str, dict[str, object]] = {}
    for name in "abcdef"[: draw(st.integers(1, 6))]:
        finite = [key for key, axis in axes.items() if "choice" in axis]
        when: dict[str, OptionValue] = {}
        if bool(finite) and draw(st.booleans()):
            key = draw(st.sampled_from(finite))
            choices = axes[key]["choice"]
            assert isinstance(choices, list)
            when = {key: draw(st.sampled_from(choices))}
        axes[name] = {**draw(plain_axes), "when": when}
    return space_of(axes)


@settings(max_examples=200, deadline=None)
@given(space=spaces(), seed=st.integers())
def test_every_draw_holds(space: Space, seed: int) -> None:
    draw = RandomDraw(str(seed))
    for _ in range(3):
        assert space.holds(space.draw(draw))


@settings(max_examples=50, deadline=None)
@given(space=spaces())
def test_every_combination_of_a_grid_holds(space: Space) -> None:
    finite = Space(
        {
            key: Constant(axis.low, when=axis.when) if isinstance(axis, Continuous) else axis
            for key, axis in space.axes.items()
        }
    )
    for _, values in zip(range(100), finite.grid(), strict=False):
        assert finite.holds(values)


def test_bounds_may_be_as_far_apart_as_numbers_can_be() -> None:
    found = draws(Continuous(1e-300, 1e300, is_log=True), 200)
    assert min(found) < 1e-200
    assert 1e200 < max(found) <= 1e300
    assert sum(1 for value in found if value < 1) > 60
