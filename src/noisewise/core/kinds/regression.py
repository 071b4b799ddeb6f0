"""The Release: the only thing that crosses from the holder to the analyst.

It holds noisy integers, the law of their noise, what was summed, the public schema and the privacy
event. It is a JSON document with a closed set of types. Whoever reads one treats it as untrusted
input: `Release.from_text` checks everything it can check and raises one ReleaseError otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from noisewise.core import document as read
from noisewise.core.calibration import discreteness_slack, laplace_scale
from noisewise.core.composition import satisfies
from noisewise.core.design import (
    STATISTIC_BITS,
    STATISTIC_ONE,
    Box,
    Design,
    Geometry,
    geometry_to_dict,
)
from noisewise.core.document import Received, RegressionRelease, check_n, fail
from noisewise.core.kinds.rounds import Rounds, check_spent
from noisewise.core.noise import DISCRETE_FAMILIES, DiscreteGaussian, DiscreteLaplace
from noisewise.core.privacy import ComposedEvent, Event, GaussianEvent, PureEvent, float_down
from noisewise.core.rounds.estimate import Observed
from noisewise.core.statistics import (
    MAX_FOURTH_MOMENTS,
    STATISTICS,
    FourthMoments,
    Layout,
    SecondMoments,
    Statistic,
    l1_sensitivity,
    l2_sensitivity,
)


@dataclass(frozen=True)
class Measurement:
    """Noisy sums of one statistic, as integers in units of 2**-32."""

    statistic: str  # name of the statistic; its entries give the order of `values`
    # "upper" or "isometric": then off-diagonal entries have noise of scale `off_diagonal_scale`,
    # which is `scale` / √2, and the noise matrix is invariant under rotation
    layout: str
    values: tuple[int, ...]
    family: str  # discrete_laplace or discrete_gaussian
    # Noise scale in grid units (Laplace scale, or Gaussian standard deviation)
    scale: int
    off_diagonal_scale: int
    # L1 (Laplace) or L2 (Gaussian) sensitivity in grid units that the scale was calibrated for
    sensitivity: int

    @property
    def noise(self) -> DiscreteLaplace | DiscreteGaussian:
        """The law of the noise on diagonal entries, and of all of them in the upper layout."""
        return DISCRETE_FAMILIES[self.family](self.scale)

    @property
    def off_diagonal_noise(self) -> DiscreteLaplace | DiscreteGaussian:
        """The law of the noise on off-diagonal entries."""
        return DISCRETE_FAMILIES[self.family](self.off_diagonal_scale)

    def unit_values(self) -> list[float]:
        """The noisy sums on unit scale."""
        return [value / STATISTIC_ONE for value in self.values]

    def to_json(self) -> dict[str, Any]:
        """Plain structure; `fraction_bits` tells a reader what the integers mean."""
        return {
            "statistic": self.statistic,
            "layout": self.layout,
            "fraction_bits": STATISTIC_BITS,
            "noise": {
                "family": self.family,
                "scale": self.scale,
                "off_diagonal_scale": self.off_diagonal_scale,
            },
            "sensitivity": self.sensitivity,
            "values": list(self.values),
        }


@dataclass(frozen=True)
class Release(RegressionRelease):
    """Noisy statistics with everything needed to interpret them.

    Parameters
    ----------
    design : Design
        Schema (restricted to the columns that were read), features and target.
    geometry : Box or Ball
    n : int or None
        Number of rows where it is public (``replace_one``), else None; a private n is in the
        second moments, as the noisy entry (0, 0).
    measurements : tuple of Measurement
        The second moments first.
    rounds : Rounds or None
        Further moments, in coordinates that earlier ones have found (`core.rounds`). The second
        moments among `measurements` are then the first of them, with little of the budget, and
        `event` is one Gaussian for all together.
    claim : Claim
        The guarantee that was asked for.
    event : Event
        What composition needs to know; `claim` follows from it.
    label : str
        Distinguishes releases of otherwise equal requests, such as one a quarter.
    software : str
    """

    design: Design
    geometry: Geometry
    measurements: tuple[Measurement, ...]
    rounds: Rounds | None = None

    FORMAT = "noisewise-release"
    FORMAT_VERSION = 1
    KEYS = ("features", "target", "design_columns", "geometry", "n", "measurements")
    OPTIONAL = ("rounds",)

    def __post_init__(self) -> None:
        _check(self)

    def measurement(self, name: str) -> Measurement | None:
        """The measurement of the statistic with this name, or None."""
        return next((m for m in self.measurements if m.statistic == name), None)

    def statistic(self, name: str) -> Statistic:
        """The description of the statistic with this name."""
        return STATISTICS[name](self.design)

    @property
    def second_moments(self) -> Measurement:
        """The measurement that every Release has."""
        return self.measurements[0]

    @property
    def noisy_n(self) -> float:
        """n itself where it is public, otherwise its noisy value, 1 at the least."""
        if self.n is not None:
            return float(self.n)
        return max(1.0, self.second_moments.values[0] / STATISTIC_ONE)

    def _content(self) -> dict[str, Any]:
        return {
            "features": list(self.design.features),
            "target": self.design.target,
            "design_columns": list(self.design.names),
            "geometry": geometry_to_dict(self.geometry),
            "n": self.n,
            "measurements": [m.to_json() for m in self.measurements],
            **({} if self.rounds is None else {"rounds": self.rounds.to_json()}),
        }

    @classmethod
    def _read(cls, document: Received) -> Self:
        return cls(
            design=document.design,
            geometry=read.geometry_from_json(document["geometry"]),
            measurements=tuple(
                map(measurement_from_json, read.items(document["measurements"], "measurements"))
            ),
            rounds=Rounds.from_json(document["rounds"]) if "rounds" in document else None,
            **document.common,
        )


def observed_moments(measurement: Measurement, design: Design) -> Observed:
    """Second moments in the bounds' own coordinates as rounds and their estimates take them.

    Entries that are public are 0, with precision 0.
    """
    a, b = np.array(SecondMoments(design).entries).T
    values = np.zeros((len(design.names), len(design.names)))
    values[a, b] = measurement.unit_values()
    values[b, a] = values[a, b]
    scale = np.where(a == b, measurement.scale, measurement.off_diagonal_scale) / STATISTIC_ONE
    precision = np.zeros_like(values)
    precision[a, b] = precision[b, a] = scale**-2.0
    return Observed(np.eye(len(values)), values, precision)


# --- reading --------------------------------------------------------------------------------------


def measurement_from_json(document: Any) -> Measurement:
    """Read what `Measurement.to_json` wrote, as far as it can be checked by itself."""
    keys = ("statistic", "layout", "fraction_bits", "noise", "sensitivity", "values")
    name, layout, bits, noise, sensitivity, values = read.take(document, "a measurement", keys)
    if not isinstance(name, str) or name not in STATISTICS:
        fail("a measurement is of an unknown statistic")
    if bits != STATISTIC_BITS or isinstance(bits, bool | float):
        fail(f"fraction_bits must be {STATISTIC_BITS}")
    family, scale, off_diagonal = read.take(
        noise, "noise", ("family", "scale", "off_diagonal_scale")
    )
    return Measurement(
        statistic=name,
        layout=read.text(layout, "layout"),
        values=read.integers(values, "values"),
        family=read.text(family, "noise family"),
        scale=read.integer(scale, "noise scale", 1, read.MAX_SCALE),
        off_diagonal_scale=read.integer(off_diagonal, "off_diagonal_scale", 1, read.MAX_SCALE),
        sensitivity=read.integer(sensitivity, "sensitivity", 1, read.MAX_INTEGER),
    )


# --- checks that hold however a Release was made --------------------------------------------------


def _check(release: Release) -> None:
    names = [m.statistic for m in release.measurements]
    if names[:1] != [SecondMoments.name] or len(set(names)) != len(names):
        fail("measurements must start with the second moments and name each statistic once")
    if release.design.unbounded:
        fail(f"column {release.design.unbounded[0]!r} has no bounds, so its sums cannot be private")
    check_n(release)
    for measurement in release.measurements:
        _check_measurement(measurement, release.statistic(measurement.statistic))
    if release.rounds is None:
        _check_privacy(release)
    else:
        _check_rounds(release, release.rounds)


def _check_measurement(measurement: Measurement, statistic: Statistic) -> None:
    name = measurement.statistic
    if isinstance(statistic, FourthMoments) and statistic.number_of_entries > MAX_FOURTH_MOMENTS:
        fail(f"{name}: more than {MAX_FOURTH_MOMENTS:,} entries for these features")
    if len(measurement.values) != len(statistic.entries):
        fail(f"{name} has {len(measurement.values)} values, expected {len(statistic.entries)}")
    if measurement.family not in DISCRETE_FAMILIES:
        fail(f"{name}: unknown noise family")
    if measurement.layout == "isometric":
        if name != SecondMoments.name or measurement.family != "discrete_gaussian":
            fail(f"{name}: only Gaussian second moments have the isometric layout")
        # √2 · off-diagonal must equal the scale up to rounding to whole numbers (and to doubles).
        # Less than that would be too little noise for what the scale pays for.
        ratio = Fraction(2 * measurement.off_diagonal_scale**2, measurement.scale**2)
        if not 1 <= ratio <= 1 + Fraction(1, 10**6):
            fail(f"{name}: off_diagonal_scale is not scale / sqrt(2)")
    elif measurement.layout != "upper":
        fail(f"{name}: layout must be upper or isometric")
    elif measurement.off_diagonal_scale != measurement.scale:
        fail(f"{name}: the upper layout has one noise scale")


def _check_privacy(release: Release) -> None:
    """The event must follow from the noise, and the claim from the event."""
    events = release.event.events if isinstance(release.event, ComposedEvent) else (release.event,)
    if len(events) != len(release.measurements):
        fail("there must be one privacy event for each measurement")
    for event, measurement in zip(events, release.measurements, strict=True):
        _check_noise(event, measurement, release)
    zcdp = release.claim.rho is not None
    if zcdp and not all(isinstance(event, GaussianEvent) for event in events):
        fail("a zCDP claim needs Gaussian noise")
    if not satisfies(events, release.claim):
        fail("the privacy claim does not follow from the event")


def _check_rounds(release: Release, rounds: Rounds) -> None:
    """All noise together must be no less than the event's; see `core.rounds.plan`."""
    rounds.check(release.design)
    first, event = release.second_moments, release.event
    if len(release.measurements) > 1 or not isinstance(release.geometry, Box):
        fail("a Release with rounds has the second moments in the box as its only measurement")
    if not isinstance(event, GaussianEvent) or first.family != "discrete_gaussian":
        fail("rounds have Gaussian noise and one Gaussian event for all together")
    layout: Layout = "isometric" if first.layout == "isometric" else "upper"
    if first.sensitivity < l2_sensitivity(SecondMoments(release.design), Box(), layout):
        fail("second_moments: the sensitivity is smaller than one unit's influence on these sums")
    smallest = min(first.scale, first.off_diagonal_scale)
    own = (first.sensitivity, first.scale, smallest, len(first.values))
    check_spent([own, *rounds.noises], event, release.claim)


def _check_noise(event: Event, measurement: Measurement, release: Release) -> None:
    """Sensitivity, scale and event must be those that the holder's side makes of each other.

    A sensitivity above the one that is proved today is wasteful and no more: an older formula may
    have been less tight.
    """
    name, stated = measurement.statistic, measurement.sensitivity
    statistic = release.statistic(name)
    if isinstance(event, PureEvent) and measurement.family == "discrete_laplace":
        least = l1_sensitivity(statistic)
        needed = laplace_scale(stated, event.epsilon)
        follows = measurement.scale == needed
        enough = measurement.scale >= needed
    elif isinstance(event, GaussianEvent) and measurement.family == "discrete_gaussian":
        isometric = measurement.layout == "isometric"
        least = l2_sensitivity(statistic, release.geometry, "isometric" if isometric else "upper")
        multiplier = float_down(Fraction(measurement.scale, stated))
        smallest = min(measurement.scale, measurement.off_diagonal_scale)
        slack = discreteness_slack(len(statistic.entries), smallest)
        follows = event == GaussianEvent(multiplier, slack)
        enough = event.noise_multiplier <= multiplier and event.slack >= slack
    else:
        fail(f"{name}: the privacy event is not one of this noise")
    if stated < least:
        fail(f"{name}: the sensitivity is smaller than one unit's influence on these sums")
    if not enough:
        fail(f"{name}: the noise is too small for the privacy event")
    if not follows:
        fail(f"{name}: the noise scale is not the one of the privacy event")
