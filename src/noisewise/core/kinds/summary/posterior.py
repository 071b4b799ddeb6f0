"""The posterior of a regression within one block, as public vocabulary.

The rows are cut into M blocks, and each block gets a regression of its own. A block's posterior of
coefficient k is a Student t with mean m_k, squared scale v_k and ν degrees of freedom. With d the
diagonal of (X'X)⁻¹, n_j the block's rows and K its number of coefficients, intercept included:

flat        prior ∝ 1/σ²:                m = β̂, v = d RSS/ν, ν = n_j - K.
g_prior     β | σ² ~ N(0, g σ² (X'X)⁻¹), p(σ²) ∝ 1/σ²:
            m = g/(g+1) β̂, v = g/(g+1) d (RSS + y'Hy/(g+1))/n_j, ν = n_j.
conjugate   β | σ² ~ N(m₀, σ² Λ₀⁻¹), σ² ~ InverseGamma(a, b), each to the power 1/M, because the
            prior would otherwise count M times (which made the paper fail at n = 10,000).

`clipped_mean` needs a posterior as narrow as that of all rows: the likelihood goes to the power M
(Li, Srivastava & Dunson 2017), which is called *full width* here. For flat, v is d RSS/ν with
ν = M n_j - K; the others have v/M with M ν degrees of freedom. The conjugate posterior is then the
one of Li et al. with the prior counted once, since (prior^(1/M) · likelihood)^M says the same.

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686. Li, Srivastava & Dunson (2017),
doi:10.1093/biomet/asx033.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from noisewise.core.errors import RequestError

MAX_G = 1e15
MAX_PRIOR = 1e100


@dataclass(frozen=True)
class Flat:
    """The reference prior, proportional to 1/σ²."""

    kind = "flat"

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """Fits every regression."""

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class GPrior:
    """Zellner's g prior, centred on zero.

    Parameters
    ----------
    g : "n" or float
        "n" is the number of rows of the whole table, not of a block; it must be public.
    """

    g: float | Literal["n"] = "n"
    kind = "g_prior"

    def __post_init__(self) -> None:
        if self.g == "n":
            return
        given = _finite(self.g, "posterior: g")
        if not 0 < given <= MAX_G:
            raise RequestError(f"posterior: g = {self.g!r} must be 'n' or a number from 0 to 1e15")
        object.__setattr__(self, "g", given)

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """A private number of rows cannot be a parameter."""
        if self.g == "n" and not n_is_public:
            raise RequestError(
                "posterior: g = 'n' needs a public number of rows, and add_remove_one keeps it "
                "private; give g a number, or use the flat posterior"
            )

    def value(self, n: int | None) -> float:
        """g as a number."""
        if self.g == "n":
            assert n is not None
            return float(n)
        return float(self.g)

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        return {"kind": self.kind, "g": self.g}


@dataclass(frozen=True)
class Conjugate:
    """A normal-inverse-gamma prior in the table's own units.

    Parameters
    ----------
    mean, precision : tuple of float
        m₀ and the diagonal of Λ₀, one number for each coefficient, the intercept first.
    shape, rate : float
        a and b of the inverse gamma prior of σ².
    """

    mean: tuple[float, ...]
    precision: tuple[float, ...]
    shape: float
    rate: float
    kind = "conjugate"

    def __post_init__(self) -> None:
        for name in ("mean", "precision"):
            numbers = tuple(_finite(v, f"posterior: {name}") for v in getattr(self, name))
            object.__setattr__(self, name, numbers)
        for name in ("shape", "rate"):
            object.__setattr__(self, name, _finite(getattr(self, name), f"posterior: {name}"))
        if min((*self.precision, self.shape, self.rate)) < 0:
            raise RequestError(
                "posterior: precision, shape and rate must be zero or positive; zero is a flat part"
            )

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """One mean and one precision for each coefficient."""
        if {len(self.mean), len(self.precision)} != {coefficients}:
            raise RequestError(
                f"posterior: the regression has {coefficients} coefficients, the intercept among "
                f"them; give as many means ({len(self.mean)} given) and precisions "
                f"({len(self.precision)} given)"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        return {
            "kind": self.kind,
            "mean": list(self.mean),
            "precision": list(self.precision),
            "shape": self.shape,
            "rate": self.rate,
        }


BlockPosterior = Flat | GPrior | Conjugate


def _finite(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{where}: expected a number, got {str(value)[:40]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= MAX_PRIOR:
        raise RequestError(f"{where}: expected a finite number of at most 1e100 in size")
    return number + 0.0
