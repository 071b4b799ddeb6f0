"""Other ways to a private regression, on unit scale: point estimates without an interval.

Plain and short. Noise comes from NumPy with a seed: for measurements, not for people.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from fractions import Fraction
from functools import lru_cache

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise.core.calibration import gaussian_noise_multiplier


class NoAnswerError(RuntimeError):
    """The method has refused, as it may by its own rules."""


class PeerAbsentError(RuntimeError):
    """The method is not installed; the message says what to do."""


# --- TukeyEM --------------------------------------------------------------------------------------

FEWEST, MOST = 8, 1000


def tukey_em(
    rows: FloatArray,
    units: IntArray | None,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Slopes by TukeyEM (Amin, Joseph, Ribero & Vassilvitskii 2022), which needs no bounds.

    The people are dealt out to m models; everybody is in one. A coefficient vector's depth is the
    smallest number of models on either side of it in any coordinate. Half of epsilon tests whether
    the boxes of depth i shrink so steadily that all neighbours of these data may be drawn from;
    half draws a vector with a probability that grows with its depth. Constants as published.

    m is public: a thousand as the authors propose, more below epsilon = 1, where the test asks for
    more, or as many as have a row for every coefficient. Half or twice as many gave no answer or
    larger errors on power, bike and randhie. Raises `NoAnswerError` where the test fails.
    """
    n, d = rows.shape  # d coefficients: the intercept takes the place of the target
    m = min(int(MOST / min(epsilon, 1.0)), n // d)
    if m < FEWEST:
        raise NoAnswerError("too few rows for TukeyEM")
    owners = np.arange(n) if units is None else np.unique(units, return_inverse=True)[1]
    model = rng.permutation(int(owners.max()) + 1)[owners] % m
    design = np.column_stack([np.ones(n), rows[:, :-1]])
    models = np.array(
        [np.linalg.lstsq(design[model == i], rows[model == i, -1], rcond=None)[0] for i in range(m)]
    )
    edges = np.sort(models + 1e-10 * rng.random(models.shape), axis=0)
    depth = np.arange(1, m // 2 + 1)
    low, high = edges[depth - 1], edges[m - depth]
    volume = np.log(high - low).sum(axis=1)  # of the box of depth 1, 2, ...
    half, t = epsilon / 2, m // 4
    safe = _safe_distance(volume, half, delta, t)
    if safe + rng.laplace(0, 1 / half) <= np.log(1 / (2 * delta)) / half:
        raise NoAnswerError("TukeyEM's test has failed")
    # The density exp(half * depth) on depths from t on is a mixture of uniform ones on boxes.
    weight = volume[t - 1 :] + half * depth[t - 1 :]
    weight[1:] += np.log1p(-np.exp(-half))
    box = t - 1 + int(np.argmax(weight + rng.gumbel(size=len(weight))))
    return rng.uniform(low[box], high[box])[1:]


def _safe_distance(volume: FloatArray, epsilon: float, delta: float, t: int) -> int:
    """How many models may change before the draw is unsafe; volume[i] is of depth i + 1."""
    threshold = np.log(delta / (8 * np.exp(epsilon)))
    found = -1
    for k in range(t - 1):
        inner = volume[t + k + 1 :]  # depths t + k + 1 + g for g = 1, 2, ...
        if inner.size == 0:
            break
        away = volume[t - k - 2] - inner - epsilon / 2 * np.arange(1, len(inner) + 1)
        if away.min() > threshold:
            break
        found = k
    return found


# --- gradient descent -----------------------------------------------------------------------------

# Tried one by one on the rows themselves, and the best is shown: nothing is paid for the choice.
DPGD_SETTINGS = tuple(
    f"{steps} steps, clip {clip:g}" for steps in (50, 500) for clip in (0.05, 0.5)
)


def dp_gd(
    rows: FloatArray,
    rows_per_unit: int,
    epsilon: float,
    delta: float,
    setting: str,
    rng: np.random.Generator,
) -> FloatArray:
    """Slopes by gradient descent on all rows, with clipped gradients and Gaussian noise.

    Each step adds noise to the sum of gradients of (y - v·theta)²/2, clipped to length C; replacing
    one person moves it by 2CK. The last half of the path is averaged.
    """
    words = setting.replace(",", "").split()
    steps, clip = int(words[0]), float(words[-1])
    n = len(rows)
    v = np.column_stack([np.ones(n), rows[:, :-1]])
    multiplier = gaussian_noise_multiplier(Fraction(str(epsilon)), Fraction(str(delta)))
    sd = multiplier * np.sqrt(steps) * 2 * clip * rows_per_unit
    length = np.sqrt((v**2).sum(axis=1))
    step = 1 / (1 + (v.shape[1] - 1) / 3)  # by the curvature, were rows uniform in their bounds
    theta, path = np.zeros(v.shape[1]), []
    for _ in range(steps):
        residual = v @ theta - rows[:, -1]
        shrunk = np.minimum(1.0, clip / np.maximum(np.abs(residual) * length, 1e-300))
        gradient = v.T @ (residual * shrunk) + sd * rng.standard_normal(len(theta))
        theta = theta - step * gradient / n
        path.append(theta)
    return np.mean(path[steps // 2 :], axis=0)[1:]


# --- diffprivlib ----------------------------------------------------------------------------------

VARIABLE = "NOISEWISE_DIFFPRIVLIB"
_WORKER = """
import json, sys, warnings
import numpy as np
from diffprivlib.models import LinearRegression
warnings.simplefilter("ignore")
print("ready", flush=True)
for line in sys.stdin:
    path, epsilon, seed = json.loads(line)
    rows = np.load(path)
    model = LinearRegression(
        epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=seed
    ).fit(rows[:, :-1], rows[:, -1])
    print(json.dumps(model.coef_.tolist()), flush=True)
"""


@lru_cache(maxsize=1)
def _diffprivlib() -> subprocess.Popen[str]:
    python = os.environ.get(VARIABLE, sys.executable)
    pipe = subprocess.PIPE
    words = [python, "-c", _WORKER]
    worker = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    if worker.stdout is None or worker.stdout.readline() != "ready\n":
        raise PeerAbsentError(
            f"diffprivlib: {python} cannot import it. Version 0.6.6 needs scikit-learn below 1.6: "
            f"install both elsewhere and set {VARIABLE} to that Python"
        )
    return worker


def diffprivlib(rows: FloatArray, rows_per_unit: int, epsilon: float, seed: int) -> FloatArray:
    """Slopes by diffprivlib's LinearRegression: pure epsilon, which K rows a person divide by K."""
    worker = _diffprivlib()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.npy"
        np.save(path, rows)
        worker.stdin.write(json.dumps([path, epsilon / rows_per_unit, seed]) + "\n")  # type: ignore[union-attr]
        worker.stdin.flush()  # type: ignore[union-attr]
        return np.array(json.loads(worker.stdout.readline()))  # type: ignore[union-attr]
