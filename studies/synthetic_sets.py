"""Do intervals from pooled synthetic data sets hold the truth, for a margin and a logistic slope?

A network of four yes-or-no columns: old; smoker, given old; disease, given old and smoker; cough,
given disease. In every trial rows are simulated, counts get noise as `laplace` adds it, `joint`
fits them, and 20 synthetic sets are analysed: the share of disease, and the slopes of a logistic
regression of disease on smoker and old (additive, as the truth is not quite). The truth is what the
same analysis finds in the true probabilities. Half a row is added to every cell of a set, so that
slopes exist where one is empty.

Rules: ``pooled`` is `noisewise.pool`; ``one set`` takes the first set for data, ``imputation`` adds
variances as for imputed data: both are negative controls. In ``wrong graph`` the arrows from old
are missing, and the slope of old is not congenial: no rule can save it, and `pool` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm, t

from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.pool import pool
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from studies.report import Options, Report, kept_trials, seed_of, write_both
from studies.tables import Row, as_markdown
from studies.zhang2016.coverage import Tables, count_records, simulate_release

NAME = "synthetic-sets"
LEVEL, SETS, TRIALS = 0.9, 20, 120
CELLS = ((3000, 1.0), (3000, 0.3), (30_000, 0.3))
PARENTS = {"smoker": ["old"], "disease": ["old", "smoker"], "cough": ["disease"]}
WRONG: dict[str, list[str]] = {"old": [], "disease": ["smoker"], "cough": ["disease"]}
TRUTH: Tables = {
    "old": np.array([0.7, 0.3]),
    "smoker": np.array([[0.6, 0.4], [0.8, 0.2]]),
    "disease": np.array([[[0.95, 0.05], [0.85, 0.15]], [[0.8, 0.2], [0.65, 0.35]]]),
    "cough": np.array([[0.8, 0.2], [0.3, 0.7]]),
}
RULES = ("pooled", "one set", "imputation")
ASKED = ("share of disease", "slope of smoker", "slope of old")


def graph(parents: dict[str, list[str]]) -> Network:
    """The network with these arrows."""
    columns = {name: Category(("no", "yes"), "no") for name in TRUTH}
    return Network.make(Schema("simulated", columns), parents)


def analyse(weights: Any) -> tuple[Any, Any]:
    """Estimates and squared standard errors of what is asked.

    `weights` are counts (or probabilities times n) of old, smoker and disease, shape (2, 2, 2).
    """
    total = weights.sum()
    share = weights[..., 1].sum() / total
    slopes, squared = _logistic(weights)
    return (np.array([share, *slopes[1:]]), np.array([share * (1 - share) / total, *squared[1:]]))


def _logistic(weights: Any) -> tuple[Any, Any]:
    """Intercept and slopes of smoker and old, by Newton's method on the eight cells."""
    old, smoker = (x.ravel() for x in np.indices((2, 2)))
    x = np.stack([np.ones(4), smoker, old], axis=1)
    many, yes = weights.sum(axis=-1).ravel(), weights[..., 1].ravel()
    beta = np.zeros(3)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        curvature = (x * (many * p * (1 - p))[:, None]).T @ x
        step = np.linalg.solve(curvature, x.T @ (yes - many * p))
        beta = beta + np.clip(step, -1.0, 1.0)  # Newton's first steps may overshoot
        if np.abs(step).max() < 1e-10:
            break
    return beta, np.diag(np.linalg.inv(curvature))


def truth() -> Any:
    """What the analysis finds in the true probabilities."""
    joint = np.einsum("a,ab,abc->abc", TRUTH["old"], TRUTH["smoker"], TRUTH["disease"])
    return analyse(joint)[0]


def trial(parents: dict[str, list[str]], n: int, epsilon: float, number: int) -> dict[str, Any]:
    """For every rule, whether its intervals hold the truth, and their widths: shape (2, asked)."""
    network = graph(parents)
    rng = np.random.default_rng(seed_of(NAME, str(network.edges), n, str(epsilon), number))
    counts = count_records(rng, graph(PARENTS), TRUTH, n)
    if "old" not in network.parents["disease"]:
        counts["smoker"] = counts["smoker"].sum(axis=0)
        counts["disease"] = counts["disease"].sum(axis=0)
    release = simulate_release(rng, network, counts, n, epsilon, "laplace")
    posterior = fit_network(release, chains=2, draws=300, seed=number)
    found = []
    for rows in posterior.synthetic_sets(SETS, n, seed=number):
        codes = [(rows[name] == "yes").astype(int) for name in ("old", "smoker", "disease")]
        weights = np.full((2, 2, 2), 0.5)  # so that slopes exist where a cell is empty
        np.add.at(weights, tuple(codes), 1)
        found.append(analyse(weights))
    q, u = (np.array(x) for x in zip(*found, strict=True))
    whole = pool(q, u, rows=n, n=n, level=LEVEL)
    b, mean = q.var(axis=0, ddof=1), u.mean(axis=0)
    imputed = mean + (1 + 1 / SETS) * b
    freedom = (SETS - 1) * (1 + mean / ((1 + 1 / SETS) * b)) ** 2
    reach = t.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(imputed)
    alone = norm.ppf((1 + LEVEL) / 2) * np.sqrt(u[0])
    ends = {
        "pooled": (whole.lower, whole.upper),
        "one set": (q[0] - alone, q[0] + alone),
        "imputation": (q.mean(axis=0) - reach, q.mean(axis=0) + reach),
    }
    true = truth()
    found_by = {
        rule: np.array([(low <= true) & (true <= high), high - low]).round(5).tolist()
        for rule, (low, high) in ends.items()
    }
    return {"trial": number, **found_by}


def write(out: Path, options: Options) -> list[Path]:
    """Run what is missing, and write table and Markdown after every setting."""
    rows: list[Row] = []
    settings = [("right graph", PARENTS, n, e) for n, e in CELLS]
    settings.append(("wrong graph", WRONG, *CELLS[-1]))
    for label, parents, n, epsilon in settings[:1] if options.quick else settings:
        records = kept_trials(
            f"{NAME}-{label}-{n}-{epsilon:g}",
            partial(trial, parents, n, epsilon),
            options.runs or (3 if options.quick else TRIALS),
            {"parents": parents, "n": n, "epsilon": epsilon},
            out,
            options,
        )
        for rule in RULES:
            outcomes = np.array([record[rule] for record in records])  # (trials, 2, asked)
            for k, what in enumerate(ASKED):
                rows.append(
                    {
                        "graph": label,
                        "n": n,
                        "epsilon": epsilon,
                        "rule": rule,
                        "asked": what,
                        "trials": len(records),
                        "coverage": round(float(outcomes[:, 0, k].mean()), 4),
                        "se": round(float(np.sqrt(0.09 / len(records))), 4),
                        "width": round(float(outcomes[:, 1, k].mean()), 4),
                    }
                )
        paths = write_both(rows, markdown, NAME, out)
    return paths


def markdown(rows: Sequence[Row]) -> str:
    """A line for each setting and question; coverage in per cent, with mean widths."""
    lines = []
    for key in dict.fromkeys((r["graph"], r["n"], r["epsilon"], r["asked"]) for r in rows):
        here = [r for r in rows if (r["graph"], r["n"], r["epsilon"], r["asked"]) == key]
        shown = [f"{100 * r['coverage']:.1f} ({r['width']:.3g})" for r in here]
        label, n, epsilon, asked = key
        lines.append((label, f"{n:,}", f"{epsilon:g}", asked, *shown))
    return as_markdown(" | ".join(("graph", "n", "epsilon", "asked", *RULES)), lines)


EXPERIMENT = Report(
    NAME, "Coverage of intervals from pooled synthetic data sets of a network", write
)
