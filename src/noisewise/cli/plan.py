"""`noisewise plan`: what a Release would be worth, before any budget is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisewise.cli.options import (
    ASKED,
    FAMILY,
    JSON,
    REGRESSION,
    Option,
    asked,
    expert,
    names_of,
    number,
    option,
    with_options,
)
from noisewise.core.errors import RequestError
from noisewise.core.privacy import as_fraction

if TYPE_CHECKING:
    from noisewise.holder.requests.file import Asked

_BUDGETS = "0.1,0.3,1,3,10"


@with_options(
    *ASKED[:2],
    *REGRESSION[:3],
    option(
        "epsilon",
        str,
        "Budgets to compare, separated by commas; the request file's, or:",
        shown=_BUDGETS,
    ),
    option("delta", float, "Of Gaussian noise; 1e-6 by default."),
    FAMILY,
    option("mean", float, "Of yes or no, the share of rows with the event; of counts, their mean."),
    option(
        "mechanism",
        str,
        "Of laplace, rounds (Gaussian noise in the data's own scale), gaussian (one round), "
        "isometric and ball; laplace and rounds by default, laplace, gaussian and ball with "
        "--radius.",
    ),
    expert("radius", float, "Of a ball that rows are forced into, on unit scale."),
    JSON,
    option(
        "n",
        int,
        "Number of rows that there will be; of people, if the schema has ids.",
        *("--rows", "--n"),
        default=Option.empty,
        least=1,
    ),
    option("want", list[str], "Half-width wanted, such as 'age: 0.1'; may be repeated."),
    option(
        "expect",
        list[str],
        "Mean and sd that a column may have, such as 'age: 45, 15'; may be repeated.",
    ),
    option("prior", Path, "Prior file, as for `noisewise fit`."),
    option("out", Path, "Picture to draw: .png, .svg or .pdf."),
    expert("level", float, "Of the intervals.", default=0.95),
    expert("seed", int, "Of the possible truths.", default=0),
)
def plan(
    n: int,
    want: list[str] | None,
    expect: list[str] | None,
    prior: Path | None,
    out: Path | None,
    level: float,
    seed: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Say how wide posterior intervals will be, and which epsilon a wanted width needs.

    Uses the schema, the number of rows and a prior: public quantities. Reads no rows, opens no
    ledger, spends nothing. Widths are in original units, medians over truths that the prior and
    the bounds allow; say what you know with --expect and --prior to make them sharper.

    Example: noisewise plan --schema schema.yaml --target income --features age,region --n 5000
    --want 'age: 100' --out plan.png

    Example: noisewise plan --schema schema.yaml --family logistic --target disease --features
    age,region --n 20000 --mean 0.1
    """
    from noisewise.analyst.regression.original_units import read_prior
    from noisewise.planning.glm import plan_glm
    from noisewise.planning.plan import plan as make_plan
    from noisewise.planning.result import FORMATS, draw_plan

    wanted = dict(_wanted(text) for text in want or [])
    if out is not None and out.suffix not in FORMATS:  # before a minute is spent
        raise RequestError(f"out: {out.name!r} must end in {', '.join(FORMATS)}")
    epsilon, mechanism, mean = given.pop("epsilon"), given.pop("mechanism"), given.pop("mean")
    words = asked("regression", **given)
    regression = {name: words.words.get(name) for name in ("target", "features", "formula")}
    delta = _amount(words, "delta") if "delta" in words.words else None
    common: dict[str, Any] = {**regression, "delta": delta, "n": n, "level": level}
    common["epsilon"] = _budgets(epsilon, words)
    family = words.words.get("family", "linear")
    if family != "linear":
        others = {"mechanism": mechanism, "want": want, "expect": expect}
        for name, value in {**others, "prior": prior, "out": out}.items():
            if value:
                raise RequestError(
                    f"{name}: plans of yes/no and counts don't take it; leave it out"
                )
        scores = plan_glm(words.read_schema(), family=family, mean=mean, **common)
        typer.echo(json.dumps(scores.to_dict()) if as_json else str(scores))
        return
    if mean is not None:
        raise RequestError("mean: a plan of a linear regression takes --expect; leave it out")
    made = make_plan(
        words.read_schema(),
        **common,
        mechanism=_mechanisms(mechanism, words),
        radius=words.words.get("radius"),
        prior=None if prior is None else read_prior(prior),
        want=wanted,
        expect=dict(_expected(text) for text in expect or []),
        seed=seed,
    )
    if out is not None:
        draw_plan(made, out)
    if as_json:
        typer.echo(json.dumps(made.to_dict()))
        return
    typer.echo(str(made))
    if out is not None:
        typer.echo(f"Wrote {out}.")


def _wanted(text: str) -> tuple[str, float]:
    name, colon, width = text.rpartition(":")
    if not colon:
        raise RequestError(
            f"want: expected a coefficient and a half-width, such as 'age: 0.1', got {text!r}"
        )
    return name.strip(), number(width, "want")


def _expected(text: str) -> tuple[str, tuple[float, float]]:
    name, colon, given = text.rpartition(":")
    values = given.split(",")
    if not colon or len(values) != 2:
        raise RequestError(
            f"expect: expected a column, a mean and a standard deviation, such as 'age: 45, 15', "
            f"got {text!r}"
        )
    return name.strip(), (number(values[0], "expect"), number(values[1], "expect"))


def _budgets(text: str | None, words: Asked) -> list[float]:
    if text is None and "rho" in words.words:
        raise RequestError("rho: a plan compares epsilons; give --epsilon, and --delta")
    if text is None and "epsilon" in words.words:
        return [_amount(words, "epsilon")]
    return [number(part, "epsilon") for part in names_of(text or _BUDGETS, "epsilon")]


def _mechanisms(text: str | None, words: Asked) -> list[str] | None:
    """Those to compare, in the names of a plan; of a request file the one that it names."""
    for name in ("fourth_moments", "smallest_eigenvalue"):
        if name in words.words:
            raise RequestError(
                f"{name}: a plan knows second moments only; leave it out of the file"
            )
    if text is not None:
        return names_of(text, "mechanism")
    named = words.words.get("mechanism")
    if named == "gaussian":
        if "radius" in words.words:
            named = "ball"
        elif words.words.get("layout") == "isometric":
            named = "isometric"
        elif words.words.get("rounds", "auto") != 1:
            named = "rounds"
    return None if named is None else [named]


def _amount(words: Asked, key: str) -> float:
    return float(as_fraction(words.words[key], key))
