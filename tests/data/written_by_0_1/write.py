"""Wrote the files beside it, once, with the code of commit e9f7e99 (0.1.0, before its release).

    git worktree add ../old e9f7e99
    PYTHONPATH=../old/src python tests/data/written_by_0_1/write.py FOLDER

The files are kept as they are: `tests/test_written_by_0_1.py` reads them with the present code.
Their noise is from the system's generator, so that another run writes other numbers. Give an empty
folder to write a new set, for instance under one version of Python to be read under another.
"""

from __future__ import annotations

import json
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np

import noisewise as nw
from noisewise.core.kinds.summary.mechanisms import Conjugate, Flat, GPrior
from noisewise.holder.requests.draws import make_regression_sample_request

ROWS = 600
MAKERS = {
    "regression": nw.make_request,
    "draws": make_regression_sample_request,
    "summary": nw.make_summary_request,
    "network": nw.make_network_request,
}
POSTERIORS = {"Flat": Flat, "GPrior": GPrior, "Conjugate": Conjugate}
COLUMNS = {
    "age": nw.Number(18, 90),
    "region": nw.Category(("north", "süd", "east"), "north"),
    "smoker": nw.Category(("no", "yes"), "no"),
    "wealth": nw.Unbounded(1000.0),
    "income": nw.Number(0, 200_000),
}
REGRESSION = {"target": "income", "features": ["age", "region"], "epsilon": 1}
SUMMARY = {
    **{"target": "income", "features": ["age", "wealth", "region"], "epsilon": 1},
    **{"rows": ROWS, "blocks": 24, "partitions": 2},
}
QUESTIONS = {"questions": ["age < 0", "wealth > 1.5"]}
COEFFICIENTS = {"coefficients": ["age", "wealth"]}
NETWORK = {"network": {"smoker": ["region"]}, "epsilon": 1}
MORE = {"label": "2026-Q3", "batch": "march", "series": "months"}
PRIVATE_N = {"neighbours": "add_remove_one"}
# Name: kind, changes to the schema, words of the request.
REQUESTS = {
    "laplace": ("regression", {}, REGRESSION),
    "laplace_exact_epsilon": ("regression", {}, {**REGRESSION, "epsilon": "1/3"}),
    "gaussian": ("regression", {}, {**REGRESSION, "delta": 1e-6}),
    "gaussian_default_delta": ("regression", {}, {**REGRESSION, "mechanism": "gaussian"}),
    "gaussian_upper_ball": (
        "regression",
        {},
        {**REGRESSION, "delta": 1e-6, "radius": 1.25, "layout": "upper"},
    ),
    "isometric_ball": ("regression", {}, {**REGRESSION, "delta": 1e-6, "radius": 1.25}),
    "zcdp": ("regression", {}, {**REGRESSION, "epsilon": None, "rho": "0.1"}),
    "private_n": ("regression", PRIVATE_N, REGRESSION),
    "rows_per_unit": ("regression", {"max_rows_per_unit": 4}, REGRESSION),
    "fill": ("regression", {"fill": {"age": 40.0, "region": "north"}}, REGRESSION),
    "fourth_moments": ("regression", {}, {**REGRESSION, "fourth_moments": 0.25}),
    "fourth_moments_zcdp": (
        "regression",
        {},
        {**REGRESSION, "epsilon": None, "rho": 0.5, "fourth_moments": "1/3"},
    ),
    "smallest_eigenvalue": ("regression", {}, {**REGRESSION, "smallest_eigenvalue": 0.2}),
    "all_three_private_n": (
        "regression",
        PRIVATE_N,
        {**REGRESSION, "delta": 1e-6, "smallest_eigenvalue": 0.1, "fourth_moments": 0.25},
    ),
    "labelled_batch": ("regression", {}, {**REGRESSION, **MORE}),
    "draws": ("draws", {}, {**REGRESSION, "noise_sd": 50_000}),
    "draws_options": (
        "draws",
        PRIVATE_N,
        {
            **{**REGRESSION, **MORE, "noise_sd": 40_000, "draws": 3, "radius": 1.5},
            **{"largest_norm": "3/2", "prior_precision": 2},
        },
    ),
    "sign": ("summary", {}, {**SUMMARY, **QUESTIONS}),
    "stouffer": ("summary", {}, {**SUMMARY, **QUESTIONS, "mechanism": "stouffer", "clip": 3.0}),
    "rescaled_normal": ("summary", {}, {**SUMMARY, **QUESTIONS, "mechanism": "rescaled_normal"}),
    "fisher": ("summary", {}, {**SUMMARY, **QUESTIONS, "mechanism": "fisher", "p_star": 0.01}),
    "location_scale": (
        "summary",
        {},
        {**SUMMARY, **COEFFICIENTS, "bases": {"age": [0.0, 50.0]}, "partitions": 1, "epsilon": 16},
    ),
    "clipped_mean": (
        "summary",
        {},
        {
            **{**SUMMARY, "coefficients": ["age"], "quantiles": [0.05, 0.5, 0.95]},
            "bounds": {"age": [-5000.0, 5000.0]},
        },
    ),
    "sign_flat": ("summary", {}, {**SUMMARY, **QUESTIONS, "posterior": ["Flat"]}),
    "sign_g_prior": ("summary", {}, {**SUMMARY, **QUESTIONS, "posterior": ["GPrior", 20.0]}),
    "sign_conjugate": (
        "summary",
        {},
        {
            **{**SUMMARY, **QUESTIONS},
            "posterior": ["Conjugate", [0.0] * 5, [1.0] * 5, 2.0, 1.0],
        },
    ),
    "sign_private_n": (
        "summary",
        PRIVATE_N,
        {**SUMMARY, **QUESTIONS, **MORE, "rows": None},
    ),
    "network_laplace": ("network", {}, NETWORK),
    "network_fourier": ("network", {}, {**NETWORK, "mechanism": "fourier"}),
    "network_fourier_stealth": (
        "network",
        PRIVATE_N,
        {**NETWORK, "mechanism": "fourier", "stealth": 0.9, **MORE},
    ),
    "network_posterior_sample": (
        "network",
        {},
        {**NETWORK, "mechanism": "posterior_sample", "draws": 3, "concentration": {"smoker": 2}},
    ),
    "network_untempered": (
        "network",
        {},
        {**NETWORK, "mechanism": "posterior_sample", "temper": 1},
    ),
    "network_map": ("network", {}, {**NETWORK, "mechanism": "map"}),
    "network_map_tempered": (
        "network",
        {},
        {**NETWORK, "mechanism": "map", "kind": "tempered", "omega": "0.1"},
    ),
    "network_map_grid": (
        "network",
        {},
        {**NETWORK, "mechanism": "map", "kind": "grid", "points": 7},
    ),
}
FITS = {
    "exact": ("laplace", {"method": "exact"}),
    "gibbs_update": ("laplace", {"method": "gibbs_update"}),
    "normal_x": ("gaussian", {"method": "normal_x", "features": ["age"]}),
    "naive": ("zcdp", {"method": "naive"}),
    "network": ("network_laplace", {"method": "joint"}),
    "network_draws": ("network_posterior_sample", {}),
}


def make(kind, schema, words):
    given = dict(words)
    if isinstance(given.get("posterior"), list):
        name, *numbers = given["posterior"]
        given["posterior"] = POSTERIORS[name](
            *(tuple(x) if isinstance(x, list) else x for x in numbers)
        )
    return MAKERS[kind](nw.Schema.from_dict(schema), **given)


def people(seed=1):
    rng = np.random.default_rng(seed)
    age, wealth = rng.uniform(18, 90, ROWS), rng.normal(0, 2000, ROWS)
    return {
        "age": age,
        "region": rng.choice(["north", "süd", "east"], ROWS),
        "smoker": rng.choice(["no", "yes"], ROWS, p=[0.7, 0.3]),
        "wealth": wealth,
        "income": np.clip(20_000 + 900 * age + 3 * wealth + rng.normal(0, 9000, ROWS), 0, 2e5),
    }


def released_numbers(release):
    """A few numbers of each kind."""
    if hasattr(release, "measurements"):
        return [value for part in release.measurements for value in part.values[:3]]
    if hasattr(release, "law"):
        return list(release.draws[0])
    if hasattr(release, "blocks"):
        return list(release.values)
    if release.has_counts:
        return [float(x) for node in release.network.nodes for x in release.counts(node).flat]
    return [float(x) for table in release.tables(0).values() for x in np.ravel(table)]


def write_releases(folder):
    requests, expected = {}, {}
    for name, (kind, changes, words) in REQUESTS.items():
        schema = nw.Schema(f"people-{name}", COLUMNS, **changes).to_dict()
        request = make(kind, schema, words)
        requests[name] = {"kind": kind, "schema": schema, "words": words, "key": request.key}
        ledger = folder / "budget.db"
        ledger.unlink(missing_ok=True)
        path = folder / "releases" / f"{name}.json"
        release = nw.publish(request, people(), ledger=ledger, out=path).release
        claim = (release.claim.epsilon, release.claim.delta, release.claim.rho)
        expected[name] = {
            "type": type(release).__name__,
            "digest": release.digest,
            "n": release.n,
            "label": release.label,
            "claim": [None if x is None else str(x) for x in claim],
            "numbers": released_numbers(release),
        }
        ledger.unlink()
    return requests, expected


def write_ledgers(folder):
    schema = nw.Schema("people", COLUMNS)

    def request(**words):
        return nw.make_request(schema, **{**REGRESSION, "epsilon": "0.1", **words})

    def ledger(name):
        return nw.Ledger(folder / "ledgers" / f"{name}.db")

    with ledger("set_cap") as book:
        book.set_cap("people", Fraction(2), Fraction(1, 10**5))
        book.set_cap("people", Fraction(3), Fraction(1, 10**5))
        nw.publish(request(), people(), ledger=book)
        nw.publish(request(delta=1e-6, label="b"), people(), ledger=book)
        nw.publish(request(epsilon=None, rho="0.01"), people(), ledger=book)
    with ledger("implicit_cap") as book:
        nw.publish(request(), people(), ledger=book)
    with ledger("voided") as book:
        book.set_cap("people", Fraction(1), Fraction(0))
        nw.publish(request(), people(), ledger=book)
        broken = {**people(), "age": np.full(ROWS, np.nan)}
        try:
            nw.publish(request(label="broken"), broken, ledger=book)
        except nw.NoisewiseError:
            pass
        else:
            raise AssertionError("missing values were not refused")
    with ledger("batches") as book:
        book.set_cap("people", Fraction(1), Fraction(0))
        for batch in ("january", "february"):
            nw.publish(request(batch=batch, series="months"), people(), ledger=book)
            nw.publish(request(batch=batch), people(), ledger=book)
        nw.publish(request(batch="w1", series="weeks"), people(), ledger=book)
    with ledger("pending") as book:
        book.set_cap("people", Fraction(1), Fraction(0))
        book.reserve(request().charge())
        book.reserve(request(label="query").charge(query="select 1"))
    found = {}
    for path in sorted((folder / "ledgers").iterdir()):
        with nw.Ledger(path) as book:
            found[path.stem] = [account.to_json() for account in book.accounts()]
    return found


def write_posteriors(folder):
    expected = {}
    for name, (release, words) in FITS.items():
        given = nw.load_release(folder / "releases" / f"{release}.json")
        path = folder / "posteriors" / f"{name}.nc"
        posterior = nw.fit(given, chains=2, draws=20, seed=1, **words)
        posterior.save(path)
        names = posterior.nodes if name.startswith("network") else posterior.names
        expected[name] = {
            "method": posterior.info.method,
            "digests": list(posterior.info.digests),
            "means": {each: posterior.draws(each).mean(axis=(0, 1)).tolist() for each in names},
        }
    return expected


def main(folder):
    for name in ("releases", "ledgers", "posteriors"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    requests, releases = write_releases(folder)
    expected = {"releases": releases, "ledgers": write_ledgers(folder)}
    expected["posteriors"] = write_posteriors(folder)
    for name, document in (("requests", requests), ("expected", expected)):
        text = json.dumps(document, indent=1, ensure_ascii=True) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
