"""Private logistic regressions beside diffprivlib's, in one run, on the same rows.

    python -m benchmarks.logistic --epsilon 1 --releases 20

For every data set: the error of slopes in standard errors of the maximum likelihood estimate from
the same rows (root mean square over slopes and Releases), for noisewise with delta = 1e-6 and for
diffprivlib's LogisticRegression, which is purely private, at each of six penalties and four norms.
Both get the same public bounds. diffprivlib's rows are scaled to them, so that their norm is known,
or to a part of them, and are then clipped to that norm: the noise is smaller, and rows far out are
moved. Its best penalty and norm are chosen by looking at the errors, which nobody could do in
private; the best penalty without clipping is shown as well. noisewise also has the share of 95%
intervals that hold that estimate, and diffprivlib has no intervals.

diffprivlib runs in the environment of NOISEWISE_DIFFPRIVLIB (a Python), because it needs an older
scikit-learn; without it only noisewise is measured, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.glm.fit import fit_glm
from noisewise.core.schema import Number
from noisewise.holder.requests.glm import make_glm_request
from studies.scores import Setting, Table, most_likely, real, released, simulated

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 10_000.0)  # C of scikit-learn: the larger, the weaker
PARTS = (1.0, 0.5, 0.2, 0.1)  # of the bounds' half width that rows are scaled to
DATA = ("rand", "fair", "normal", "correlated")
_PEER = """
import json, sys
import numpy as np
from diffprivlib.models import LogisticRegression
path, epsilon, releases, penalties, parts = json.loads(sys.argv[1])
with np.load(path) as found:
    x, y = found["x"], found["y"]
norm = float(np.sqrt(x.shape[1]))
out = []
for part in parts:
    for c in penalties:
        drawn = []
        for _ in range(releases):
            model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=c, max_iter=2000)
            model.fit(x / part, y)
            drawn.append([*model.intercept_.tolist(), *(model.coef_[0] / part).tolist()])
        out.append([part, c, drawn])
print(json.dumps(out))
"""


def table_of(name: str) -> Table:
    """A real table, or a simulated one that stays the same for all Releases."""
    if name in ("rand", "fair"):
        return real(name, np.random.default_rng(1))
    return simulated(Setting(name, 20_000, 5), np.random.default_rng(1))


def ours(table: Table, epsilon: float, releases: int) -> tuple[FloatArray, FloatArray]:
    """Medians of coefficients, (releases, d), and whether intervals hold the estimate."""
    best, _ = most_likely(table, "logistic")
    features = [name for name in table.schema.columns if name != "y"]
    request = make_glm_request(
        table.schema, family="logistic", target="y", features=features, epsilon=epsilon
    )
    middle, held = [], []
    for number in range(releases):
        posterior = fit_glm(released(request, table.columns), chains=2, draws=400, seed=number)
        ends = np.array([posterior.interval(name) for name in posterior.names])
        middle.append([posterior.summary().rows[name].median for name in posterior.names])
        held.append((ends[:, 0] < best) & (best < ends[:, 1]))
    return np.array(middle), np.array(held)


def peers(
    table: Table, epsilon: float, releases: int
) -> dict[tuple[float, float], FloatArray] | None:
    """Coefficients in original units by part and penalty, (releases, d) each.

    None without diffprivlib.
    """
    python = os.environ.get("NOISEWISE_DIFFPRIVLIB")
    if python is None:
        return None
    kinds = table.schema.columns.values()
    numbers = [column for column in kinds if isinstance(column, Number)]
    centre = np.array([column.centre for column in numbers])
    half = np.array([column.half_width for column in numbers])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, x=(table.x[:, 1:] - centre) / half, y=table.y.astype(int))
        words = json.dumps([str(path), epsilon, releases, PENALTIES, PARTS])
        done = subprocess.run(
            [python, "-c", _PEER, words], capture_output=True, text=True, check=True
        )
    found: list[Any] = json.loads(done.stdout)
    out = {}
    for part, penalty, drawn in found:
        unit = np.array(drawn)
        slopes = unit[:, 1:] / half
        intercept = unit[:, :1] - (slopes @ centre)[:, None]
        out[part, penalty] = np.hstack([intercept, slopes])
    return out


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    options = parser.parse_args()
    print(f"epsilon = {options.epsilon:g}, {options.releases} Releases")
    print("| data | rows | noisewise: RMSE, held | diffprivlib at its best | without clipping |")
    print("|---|---|---|---|---|")
    for name in options.data:
        table = table_of(name)
        best, se = most_likely(table, "logistic")

        def rmse(drawn: FloatArray, best: FloatArray = best, se: FloatArray = se) -> float:
            return float(np.sqrt(np.mean(((drawn - best) / se)[:, 1:] ** 2)))

        middle, held = ours(table, options.epsilon, options.releases)
        others = peers(table, options.epsilon, options.releases)
        shown = ["not measured: NOISEWISE_DIFFPRIVLIB is not set", ""]
        if others is not None:
            errors = {setting: rmse(drawn) for setting, drawn in others.items()}
            shown = [
                f"{least:.2f} (C = {penalty:g}, {part:g} of the bounds)"
                for least, part, penalty in (
                    min((error, *setting) for setting, error in errors.items() if setting[0] in of)
                    for of in (PARTS, PARTS[:1])
                )
            ]
        share = float(held[:, 1:].mean())
        own = f"{rmse(middle):.2f}, {share:.0%}"
        print(f"| {name} | {len(table.y):,} | {own} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
