"""A short test that noise functions do what their names say, run once before a process uses them.

What is tested is somebody else's program, in whatever version is installed and on whatever machine.
Secure noise has no seed, so there is no list of right outputs. But some answers are certain, and
others nearly so:

1. The privacy map of scale s is d/s for Laplace noise and d²/2s² for Gaussian noise.
2. Noise of scale 1/1024 is 0, but for a probability below e^-1000: every sum comes back as it was,
   in its place, up to both ends of the 64-bit range.
3. Of 1,000 draws of each law, at scale 4 and at scale 2^40, the share with some property is close
   to the property's probability: a negative sign, an odd number, a small size, and that both of two
   draws are the same.

**Claim.** Right noise fails with probability below 1e-12.

**Proof.** A count of independent draws with probability p is as far from its mean as c/n, or
farther to that side, with probability at most exp(-n KL(c/n, p)) (Chernoff 1952), where KL is the
relative entropy of the two. `_agrees` refuses if that is below `_ALARM`, so each of the 24 shares
fails with probability at most 2 `_ALARM`, all of them with less than 1e-13. Probabilities at scale
2^40 are those of continuous laws, which differ by less than 1e-11; that changes no bound by more
than a millionth of itself. ∎

It finds gross faults: no noise, the same noise for every sum, a scale that is taken for a variance
or is off by a half, one sign, lower digits without noise. It is no statistical test of the law:
those are in tests/statistical and in `noisewise audit`. It takes 35 ms of the processor.

References
----------
Chernoff (1952), "A measure of asymptotic efficiency for tests of a hypothesis based on the sum of
observations", DOI 10.1214/aoms/1177729330.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

DRAWS = 1000
_ALARM = 2e-15
_SMALL, _LARGE, _NONE = 4, 2**40, 1 / 1024
_ENDS = [0, -7, 5, 2**62 + 1, 2**63 - 1, 1 - 2**63]


def check(laplace: Callable[[float], Any], gaussian: Callable[[float], Any]) -> str:
    """What is wrong with these functions from a scale to a mechanism; "" if nothing is."""
    for name, make, whole in (("Laplace", laplace, _laplace), ("Gaussian", gaussian, _gaussian)):
        for scale in (2, _SMALL):
            moved, expected = (3, 3 / scale) if name == "Laplace" else (3.0, 4.5 / scale**2)
            if not expected <= make(scale).map(moved) <= expected * (1 + 1e-12):
                return f"the privacy map of {name} noise is wrong"
        if list(make(_NONE)(_ENDS)) != _ENDS:
            return f"{name} noise of scale {_NONE} changes sums"
        for scale in (_SMALL, _LARGE):
            start = 1000 * scale
            noise = [value - start for value in make(scale)([start] * DRAWS)]
            for what, share, probability in _shares(noise, scale, whole(_SMALL), name):
                if not _agrees(share, probability):
                    return f"{name} noise of scale {scale} has the wrong law: {what}"
    return ""


def _shares(
    noise: Sequence[int], scale: int, small: dict[int, float], name: str
) -> Iterable[tuple[str, Sequence[bool], float]]:
    """Properties of draws, which of them have it, and its probability."""
    pairs = [a == b for a, b in zip(noise[::2], noise[1::2], strict=True)]
    if scale == _SMALL:
        yield "its sign", [z < 0 for z in noise], sum(p for z, p in small.items() if z < 0)
        yield "odd numbers", [z % 2 == 1 for z in noise], sum(p for z, p in small.items() if z % 2)
        for most in (0, 2, 7):
            inside = sum(p for z, p in small.items() if abs(z) <= most)
            yield "its size", [abs(z) <= most for z in noise], inside
        yield "repetitions", pairs, sum(p**2 for p in small.values())
        return
    # One of 2^40 is as good as nothing: these are the probabilities of the continuous laws.
    yield "its sign", [z < 0 for z in noise], 0.5
    for bit in (0, 8, 20):
        yield "digits", [z >> bit & 1 == 1 for z in noise], 0.5
    inside = -math.expm1(-1.0) if name == "Laplace" else math.erf(math.sqrt(0.5))
    yield "its size", [abs(z) <= scale for z in noise], inside
    yield "repetitions", pairs, 1 / scale


def _agrees(share: Sequence[bool], probability: float) -> bool:
    """Whether a share may have come about by chance."""
    count, n = sum(share), len(share)
    entropy = 0.0  # relative, of the share and the probability
    for part, expected in ((count / n, probability), (1 - count / n, 1 - probability)):
        if part:
            entropy += part * math.log(part / expected)
    return math.exp(-n * entropy) >= _ALARM


def _laplace(scale: int) -> dict[int, float]:
    return _law([math.exp(-abs(z) / scale) for z in _reach(scale)], scale)


def _gaussian(scale: int) -> dict[int, float]:
    return _law([math.exp(-(z**2) / (2 * scale**2)) for z in _reach(scale)], scale)


def _reach(scale: int) -> range:
    return range(-60 * scale, 60 * scale + 1)


def _law(weights: Sequence[float], scale: int) -> dict[int, float]:
    total = math.fsum(weights)
    return {z: weight / total for z, weight in zip(_reach(scale), weights, strict=True)}
