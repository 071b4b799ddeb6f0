"""Pictures are written, in every format, with what they should show."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise import _palette
from noisewise.analyst.posterior.plots import AWARE, NAIVE, PLOTS, _density, _styles, plot
from noisewise.analyst.posterior.regression import FitInfo, Posterior
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.regression import make_request

from .test_posterior import columns, made

__all__ = ["columns"]

BESIDE = [kind for kind in PLOTS if kind != "forest"]  # a forest is of holders: test_varying


@pytest.mark.parametrize("kind", BESIDE)
def test_one_posterior_is_drawn_beside_the_naive_one(kind, columns, tmp_path):
    path = tmp_path / "picture.svg"
    plot({"post": made(columns)}, path, kind=kind, reference={"age": 2.0})
    text = path.read_text()
    assert text.count("<svg") == 1
    assert "DejaVu" in text or "<path" in text


NAMES = {"intervals": ["sigma2"], "marginals": ["sigma2"], "pairs": ["age", "sigma"]}


@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_several_posteriors(kind, suffix, columns, tmp_path):
    path = tmp_path / f"picture.{suffix}"
    both = {"a": made(columns, 1), "b": made(columns, 2)}
    plot(both, path, kind=kind, names=NAMES.get(kind), level=0.5)
    assert path.stat().st_size > 2_000


def test_a_notebook_gets_the_figure(columns):
    figure = made(columns).plot(kind="effect", names=["age"])
    [axis] = figure.axes
    [line] = [line for line in axis.lines if len(line.get_xdata()) > 2]
    declared = columns.schema.columns["age"]
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (declared.lower, declared.upper)
    slope = np.median(made(columns).draws("age"))
    assert line.get_ydata()[-1] == pytest.approx(slope * (declared.upper - declared.lower))
    assert line.get_ydata()[0] == 0


def test_effects_of_categories_are_those_of_their_levels(columns):
    posterior = made(columns)
    [feature] = [name for name in columns.features if name != "age"][:1]
    effect = posterior.effect(feature)
    assert effect.at[0] == columns.schema.columns[feature].reference
    assert (effect.draws[:, 0] == 0).all()
    for place, level in list(enumerate(effect.at))[1:]:
        own = posterior.draws(f"{feature}[{level}]").reshape(-1)
        np.testing.assert_allclose(effect.draws[:, place], own)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "pairs", "names": ["age"]}, "pairs need 2 to 6 parameters, here are 1"),
        ({"kind": "effect", "names": ["sigma2"]}, "'sigma2' is not a feature; there are"),
    ],
)
def test_pictures_that_make_no_sense(words, message, columns):
    with pytest.raises(RequestError, match=message):
        made(columns).plot(**words)


def test_densities_end_where_what_is_possible_ends():
    draws = np.random.default_rng(1).beta(1, 1, 20_000)
    grid, height = _density(draws, "R2")
    assert (grid[0], grid[-1]) == (0, 1)
    assert height.min() > 0.9  # uniform, right up to both ends
    other, _ = _density(draws - 0.5, "R2")  # a column of that name
    assert other[0] < -0.4
    grid, height = _density(draws, "age")
    assert height[0] < 0.2


def test_nothing_to_draw(tmp_path):
    with pytest.raises(RequestError, match="none"):
        plot({}, tmp_path / "a.png")


def test_what_ignores_the_noise_has_one_colour_in_every_picture():
    """Blue for noise-aware, orange for what is not, alone or in any order, as in reports."""
    orange, blue = _palette.NAIVE, _palette.AWARE
    for labels in (("naive", "aware"), ("aware", "naive"), (AWARE, NAIVE), (NAIVE,)):
        for label, style in _styles(labels).items():
            assert style["color"] == (orange if "naive" in label else blue)
    many = _styles(["naive", *"abcdef"])
    assert len({tuple(style.values()) for style in many.values()}) == 7


def test_effects_follow_the_terms_of_a_formula():
    """A curve for a square; and in an interaction, the others in their middle."""
    schema = Schema(
        "people",
        {"age": Number(20, 80), "smoker": Category(("no", "yes"), "no"), "y": Number(0, 1)},
    )
    design = make_request(schema, formula="y ~ age * smoker + I(age**2)", epsilon=1).design
    columns = ModelColumns(design.schema, design.features, design.target)
    names = list(columns.names)
    theta = np.zeros((1, 3, len(names)))
    theta[..., names.index("age")], theta[..., names.index("I(age**2)")] = 2.0, 0.5
    [both] = [name for name in names if "age" in name and "smoker" in name]
    theta[..., names.index("smoker[yes]")], theta[..., names.index(both)] = 7.0, 0.1
    posterior = Posterior(columns, theta, np.ones((1, 3)), made_info())
    assert posterior.features == ("age", "smoker")
    age = posterior.effect("age")
    at = np.array(age.at)
    np.testing.assert_allclose(age.draws[0], 2.0 * (at - 20) + 0.5 * (at**2 - 400))
    np.testing.assert_allclose(posterior.effect("smoker").draws[0], [0, 7 + 0.1 * 50])


def made_info():
    return FitInfo(method="made", reason="for a test", noise_aware=True)
