"""Coverage and error of logistic and Poisson regressions by private rounds.

    python -m studies scores --repeats 40

Every repeat simulates rows, goes through all rounds as the holder does (without a ledger), fits, and
asks whether 95% intervals hold the true coefficients. `naive` is the negative control: the same
round, taken for noiseless. Errors are in standard errors of the maximum likelihood estimate from the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.analyst.glm.fit import fit_glm
from noisewise.core.kinds.glm import GlmRelease
from noisewise.core.kinds.rounds import is_number
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.glm import GlmRequest, make_glm_request


@dataclass(frozen=True)
class Cell:
    """One setting of the study.

    Parameters
    ----------
    n, k : int
        Rows and covariates.
    x : {"normal", "correlated", "skewed", "yes_no"}
        What the covariates are like; of yes_no every other one is a category.
    rare : bool
        Whether about 5% have the event; else about 40%.
    family : {"logistic", "poisson"}
    """

    n: int
    k: int
    x: str = "normal"
    rare: bool = False
    family: str = "logistic"


CELLS = (
    Cell(2000, 1),
    Cell(5000, 5),
    Cell(20_000, 5),
    Cell(20_000, 5, "correlated"),
    Cell(20_000, 5, "skewed"),
    Cell(20_000, 5, "yes_no"),
    Cell(20_000, 5, rare=True),
    Cell(20_000, 11),
    Cell(100_000, 11, "skewed", rare=True),
    Cell(5000, 3, family="poisson"),
)


def rows(cell: Cell, rng: np.random.Generator) -> tuple[dict[str, Any], Schema, np.ndarray]:
    """Columns as an engine gives them, their schema, and the true coefficients."""
    x = rng.standard_normal((cell.n, cell.k))
    if cell.x == "correlated":
        x = np.sqrt(0.4) * x + np.sqrt(0.6) * rng.standard_normal((cell.n, 1))
    elif cell.x == "skewed":
        x = np.exp(0.8 * x) - np.exp(0.32)
    slopes = 0.6 * (-1.0) ** np.arange(cell.k) / np.sqrt(max(1.0, cell.k / 4))
    intercept = {"logistic": -3.2 if cell.rare else -0.5, "poisson": 0.0}[cell.family]
    columns: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for j in range(cell.k):
        if cell.x == "yes_no" and j % 2 == 0:
            x[:, j] = x[:, j] > 0.5
            columns[f"x{j}"] = x[:, j].astype(np.int32)
            declared[f"x{j}"] = Category(("a", "b"), "a")
        else:
            columns[f"x{j}"] = x[:, j]
            declared[f"x{j}"] = Number(-20, 20)
    eta = intercept + x @ slopes
    if cell.family == "logistic":
        columns["y"] = (rng.random(cell.n) < 1 / (1 + np.exp(-eta))).astype(np.int32)
        declared["y"] = Category(("no", "yes"), "no")
    else:
        columns["y"] = rng.poisson(np.exp(eta)).astype(np.float64)
        declared["y"] = Number(0, 12)
    columns["matrix"] = np.column_stack([np.ones(cell.n), x])
    return columns, Schema("simulated", declared), np.append(intercept, slopes)


def released(request: GlmRequest, table: dict[str, Any]) -> GlmRelease:
    """Through all rounds, without a ledger."""

    def sums(plan: Any) -> Any:
        accumulator = plan.accumulator()
        accumulator.add([table[name] for name in plan.sources])
        return accumulator.result()

    first = sums(request.plan())
    drawn: GlmRelease | str = request.begin(first.n, first)
    kept: list[str] = []
    while isinstance(drawn, str):
        kept.append(drawn)
        step = request.next_step(kept)
        drawn = request.draw(kept, step, sums(request.step_plan(step)))
    return drawn


def most_likely(x: np.ndarray, y: np.ndarray, family: str) -> tuple[np.ndarray, np.ndarray]:
    """The maximum likelihood estimate from the rows, and its standard errors."""
    beta = np.zeros(x.shape[1])
    for _ in range(40):
        eta = x @ beta
        mean = 1 / (1 + np.exp(-eta)) if family == "logistic" else np.exp(np.minimum(eta, 30))
        slope = mean * (1 - mean) if family == "logistic" else mean
        information = (x.T * slope) @ x
        beta = beta + np.linalg.solve(information, x.T @ (y - mean))
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


def naive(release: GlmRelease, posterior: Any, truth: np.ndarray) -> np.ndarray:
    """Whether intervals from the last round hold the truth, if it is taken for noiseless."""
    last, K = release.last, release.shape.map(is_number(release.design.covariates))
    J = last.within_noise()
    to_original = posterior.columns.theta_to_original(K).T
    centre = to_original @ (last.theta + np.linalg.solve(J, last.score))
    sd = np.sqrt(np.diag(to_original @ np.linalg.inv(J) @ to_original.T))
    return np.asarray(np.abs(centre - truth) < 1.96 * sd)


def study(cell: Cell, repeats: int, epsilon: float, seed: int) -> dict[str, float]:
    """Coverage, coverage of the control, and root mean square error in standard errors."""
    rng = np.random.default_rng(seed)
    held, control, errors, widths, warned = [], [], [], [], 0
    for repeat in range(repeats):
        table, schema, truth = rows(cell, rng)
        request = make_glm_request(
            schema,
            family=cell.family,  # type: ignore[arg-type]
            target="y",
            features=[f"x{j}" for j in range(cell.k)],
            epsilon=epsilon,
        )
        release = released(request, table)
        posterior = fit_glm(release, chains=2, draws=250, seed=repeat)
        best, se = most_likely(table["matrix"], table["y"], cell.family)
        ends = np.array([posterior.interval(name) for name in posterior.names])
        middle = np.median(posterior.theta.reshape(-1, len(truth)), axis=0)
        held.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        control.append(naive(release, posterior, truth))
        errors.append((middle - best) / se)
        widths.append((ends[:, 1] - ends[:, 0]) / (3.92 * se))
        warned += bool(posterior.warnings)
    return {
        "coverage": float(np.mean(held)),
        "least coverage": float(np.mean(held, axis=0).min()),
        "control": float(np.mean(control)),
        "rmse / se": float(np.sqrt(np.mean(np.square(errors)))),
        "width / se": float(np.median(widths)),
        "warned": warned / repeats,
    }


def lines(repeats: int, epsilon: float = 1.0, seed: int = 1) -> Iterator[str]:
    """The table, line by line."""
    yield "| cell | coverage | least | control | rmse / se | width / se | warned |"
    yield "|---|---|---|---|---|---|---|"
    for cell in CELLS:
        found = study(cell, repeats, epsilon, seed)
        rare = ", 5%" if cell.rare else ""
        name = f"{cell.family}, n = {cell.n:,}, k = {cell.k}, {cell.x}{rare}"
        numbers = " | ".join(f"{value:.2f}" for value in found.values())
        yield f"| {name} | {numbers} |"
