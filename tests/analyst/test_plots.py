"""Pictures are written, in every format, with what they should show."""

from __future__ import annotations

import pytest

from noisewise.analyst.posterior.plots import AWARE, NAIVE, PLOTS, _styles, plot
from noisewise.core.errors import RequestError

from .test_posterior import columns, made

__all__ = ["columns"]


@pytest.mark.parametrize("kind", PLOTS)
def test_one_posterior_is_drawn_beside_the_naive_one(kind, columns, tmp_path):
    path = tmp_path / "picture.svg"
    plot({"post": made(columns)}, path, kind=kind, reference={"age": 2.0})
    text = path.read_text()
    assert text.count("<svg") == 1
    assert "DejaVu" in text or "<path" in text


@pytest.mark.parametrize("kind", PLOTS)
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_several_posteriors(kind, suffix, columns, tmp_path):
    path = tmp_path / f"picture.{suffix}"
    both = {"a": made(columns, 1), "b": made(columns, 2)}
    plot(both, path, kind=kind, names=["sigma2"], level=0.5)
    assert path.stat().st_size > 2_000


def test_nothing_to_draw(tmp_path):
    with pytest.raises(RequestError, match="none"):
        plot({}, tmp_path / "a.png")


def test_what_ignores_the_noise_has_one_colour_in_every_picture():
    """Blue for noise-aware, orange for what is not, alone or in any order, as in reports."""
    orange, blue = "#D55E00", "#0072B2"
    for labels in (("naive", "aware"), ("aware", "naive"), (AWARE, NAIVE), (NAIVE,)):
        for label, style in _styles(labels).items():
            assert style["color"] == (orange if "naive" in label else blue)
    many = _styles(["naive", *"abcdef"])
    assert len({tuple(style.values()) for style in many.values()}) == 7
