"""One suite that every mechanism passes.

Noise can't be seeded, so every test here that looks at draws may fail by chance. `LEVEL` bounds
that probability for each of them; there are about a dozen, so a sound build fails about once in a
hundred thousand runs. The power against what they are meant to catch is stated beside them, and for
the noise laws it is computed from the noncentral chi-square law and asserted.
"""

from __future__ import annotations

import inspect
import math
import pkgutil
import random
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from noisewise.core.calibration import gaussian_noise_multiplier, gaussian_scale
from noisewise.core.composition import epsilon_of, within
from noisewise.core.document import MAX_SCALE
from noisewise.core.noise import DISCRETE_FAMILIES, DiscreteGaussian, DiscreteLaplace
from noisewise.core.privacy import GaussianEvent, PureEvent, float_up
from noisewise.holder import mechanisms as package
from noisewise.holder.mechanisms import randomness
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import MECHANISMS, make_request

LEVEL = 1e-6
DRAWS = 30_000
LIMIT = 2**63 - 1
LARGE = 2**34 + 12_345  # about the scale of a real release
LIMITS = {"discrete_laplace": stats.laplace, "discrete_gaussian": stats.norm}
SMALL = 10  # so small that the noise is visibly discrete

# Rows per unit may be a million, hence sensitivities beyond 2**53.
sensitivities = st.one_of(
    st.integers(1, 2**12), st.integers(2**30, 2**45), st.integers(2**52, 2**55)
)
epsilons = st.fractions(Fraction(1, 50), 50, max_denominator=10_000)
deltas = st.sampled_from([Fraction(1, 10**k) for k in (2, 6, 12)])


@pytest.fixture(scope="module", autouse=True)
def holders_noise():
    """Real: it is what is looked at here."""


# ---------------------------------------------------------------------------------------------
# Statistics of draws


def cells_of_integers(law, edge):
    """Cells ..-edge, -edge+1, ..., edge-1, edge.. with exact probabilities, and who is where."""
    inner = np.exp(law.logpmf(np.arange(-edge + 1, edge)))
    outer = (1 - inner.sum()) / 2
    return np.concatenate([[outer], inner, [outer]]), lambda x: np.clip(x, -edge, edge) + edge


def cells_of_a_continuum(family, scale, cuts):
    """Cells between `cuts`, for the limiting law; at large scales that is the discrete law."""
    inner = LIMITS[family].cdf(cuts, scale=scale)
    return np.diff(np.concatenate([[0.0], inner, [1.0]])), lambda x: np.searchsorted(cuts, x)


def chi_square_p(draws, cells):
    probabilities, place = cells
    counts = np.bincount(place(np.asarray(draws)), minlength=len(probabilities))
    expected = len(draws) * probabilities
    assert expected.min() > 20  # for the chi-square approximation
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


def power(truth, stated):
    """Probability that DRAWS draws reject the stated cells when others are true."""
    noncentrality = DRAWS * ((truth[0] - stated[0]) ** 2 / stated[0]).sum()
    freedom = len(stated[0]) - 1
    return stats.ncx2.sf(stats.chi2.isf(LEVEL, freedom), freedom, noncentrality)


def draws_of(mechanism, count):
    """`count` draws from each of the diagonal and the off-diagonal noise, or () where none."""
    if not hasattr(mechanism, "off_diagonal"):
        return np.array(mechanism.add_noise([0] * count)), ()
    wide = replace(mechanism, off_diagonal=(False,) * count + (True,) * count)
    if not any(mechanism.off_diagonal):
        wide = replace(mechanism, off_diagonal=(False,) * count)
    noisy = np.array(wide.add_noise([0] * len(wide.off_diagonal)))
    return noisy[:count], noisy[count:]


# ---------------------------------------------------------------------------------------------
# The suite


class Laplace:
    """How to make a Laplace mechanism."""

    entries = 6

    def with_scale(self, scale):
        """A mechanism whose noise scale is exactly this."""
        mechanism = LaplaceMechanism(scale, Fraction(1))
        assert mechanism.scale == scale
        return mechanism

    def planned(self, sensitivity, epsilon, delta):
        """A mechanism planned for a claim, as `holder.requests.regression` does it."""
        return LaplaceMechanism(sensitivity, epsilon)

    def break_measurement(self, monkeypatch, factor):
        """Make OpenDP's measurement use another scale than the mechanism states."""
        make = randomness.laplace_measurement
        monkeypatch.setattr(randomness, "laplace_measurement", lambda s: make(int(s * factor)))


class Gaussian:
    """How to make a Gaussian mechanism in either layout."""

    def __init__(self, off_diagonal):
        self.off_diagonal = off_diagonal
        self.entries = len(off_diagonal)

    def with_scale(self, scale):
        return GaussianMechanism(scale, scale, self.off_diagonal)

    def planned(self, sensitivity, epsilon, delta):
        # A hair more than the continuous multiplier covers the slack of discreteness.
        multiplier = gaussian_noise_multiplier(epsilon, delta) * (1 + 1e-10)
        scale = gaussian_scale(sensitivity, multiplier)
        return GaussianMechanism(sensitivity, scale, self.off_diagonal)

    def break_measurement(self, monkeypatch, factor):
        make = randomness.gaussian_measurement
        monkeypatch.setattr(randomness, "gaussian_measurement", lambda s: make(int(s * factor)))


ISOMETRIC = (False, True, True, False, True, False)
CASES = {
    "laplace": Laplace(),
    "gaussian_upper": Gaussian((False,) * 6),
    "gaussian_isometric": Gaussian(ISOMETRIC),
}
conforms = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
gaussian_only = pytest.mark.parametrize(
    "case", [CASES[name] for name in CASES if name.startswith("gaussian")]
)


def test_every_mechanism_that_a_request_can_name_is_in_the_suite():
    """By its name, with whatever option after an underscore."""
    for name in MECHANISMS:
        assert [case for case in CASES if case == name or case.startswith(f"{name}_")], name


# --- claims -----------------------------------------------------------------------------


@conforms
@settings(max_examples=150, deadline=None)
@given(sensitivity=sensitivities, epsilon=epsilons, delta=deltas)
def test_opendp_grants_the_claim(case, sensitivity, epsilon, delta):
    mechanism = case.planned(sensitivity, epsilon, delta)
    assume(mechanism.scale <= MAX_SCALE)
    mechanism.verify()


@conforms
@settings(max_examples=80, deadline=None)
@given(sensitivity=st.integers(2**30, 2**45), epsilon=epsilons, delta=deltas)
def test_the_claim_follows_from_the_event_and_is_not_wasteful(case, sensitivity, epsilon, delta):
    mechanism = case.planned(sensitivity, epsilon, delta)
    assume(mechanism.scale <= MAX_SCALE)
    spent_delta = Fraction(0) if isinstance(mechanism.event(), PureEvent) else delta
    assert within([mechanism.event()], epsilon, spent_delta)
    spent = epsilon_of([mechanism.event()], spent_delta)
    assert spent <= epsilon
    assert float(spent) == pytest.approx(float(epsilon), rel=1e-7)  # whole-number scales
    # The control: with one part in a million of epsilon less, the event is too expensive.
    assert not within([mechanism.event()], epsilon * (1 - Fraction(1, 10**6)), spent_delta)


@conforms
@settings(max_examples=80, deadline=None)
@given(sensitivity=st.integers(2**30, 2**45), epsilon=epsilons, delta=deltas)
def test_the_event_follows_from_the_noise(case, sensitivity, epsilon, delta):
    """In exact arithmetic, and with no room for a smaller claim."""
    mechanism = case.planned(sensitivity, epsilon, delta)
    ratio = Fraction(mechanism.scale, mechanism.sensitivity)
    event = mechanism.event()
    if isinstance(event, PureEvent):
        assert 1 <= event.epsilon * ratio <= 1 + Fraction(1, 2**20)
    else:
        assert isinstance(event, GaussianEvent)
        assert Fraction(event.noise_multiplier) <= ratio
        assert ratio < Fraction(math.nextafter(event.noise_multiplier, math.inf))
        assert event.slack > 0


@conforms
@settings(max_examples=60, deadline=None)
@given(
    sensitivity=st.integers(2**30, 2**45),
    epsilon=epsilons,
    delta=deltas,
    more=st.fractions(Fraction(11, 10), 4, max_denominator=100),
)
def test_more_budget_needs_less_noise(case, sensitivity, epsilon, delta, more):
    mechanism = case.planned(sensitivity, epsilon, delta)
    richer = case.planned(sensitivity, epsilon * more, delta)
    wider = case.planned(math.ceil(sensitivity * more), epsilon, delta)
    assert richer.scale < mechanism.scale < wider.scale
    assert richer.off_diagonal_scale < mechanism.off_diagonal_scale < wider.off_diagonal_scale


@conforms
@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(9, 10), 1 - Fraction(1, 10**6)])
def test_verify_rejects_noise_that_is_too_small(case, monkeypatch, factor):
    mechanism = case.planned(2**34, Fraction(1), Fraction(1, 10**6))
    mechanism.verify()
    case.break_measurement(monkeypatch, factor)
    with pytest.raises(AssertionError, match="OpenDP charges"):
        mechanism.verify()


# --- integers ---------------------------------------------------------------------------


@conforms
def test_integers_in_integers_out(case):
    mechanism = case.with_scale(LARGE)
    sums = [0, 1, -1, 2**40, -(2**61), 2**62][: case.entries]
    noisy = mechanism.add_noise(sums)
    assert isinstance(noisy, tuple)
    assert [type(value) for value in noisy] == [int] * case.entries
    assert mechanism.add_noise(tuple(sums)) != noisy
    assert type(mechanism.scale) is type(mechanism.off_diagonal_scale) is int
    assert mechanism.family in DISCRETE_FAMILIES


@conforms
def test_noise_is_added_to_the_sums_in_their_order(case):
    """Sums that are a thousand noise scales apart: no draw can hide a swap.

    A Laplace draw exceeds 40 scales with probability 4e-18.
    """
    mechanism = case.with_scale(LARGE)
    sums = [1000 * LARGE * k for k in (5, -2, 0, 7, -9, 3)]
    noise = np.array(mechanism.add_noise(sums)) - np.array(sums)
    assert np.all(np.abs(noise) < 40 * LARGE)
    assert np.all(noise != 0)  # each with probability 1/LARGE at most


@conforms
def test_every_low_bit_is_noisy(case):
    """No grid coarser than 1 shows through: the lowest bits of the noise are fair coins.

    Porous noise, such as a rounded float times a power of two, would leave them at 0.
    """
    diagonal, _ = draws_of(case.with_scale(2**40), 4000)
    for bit in (0, 1, 7):
        ones = int(((diagonal >> bit) & 1).sum())
        assert stats.binomtest(ones, 4000).pvalue > LEVEL / 10


@conforms
def test_values_at_the_end_of_the_range_saturate_and_never_wrap(case):
    """Near ±2**63 the result stays on its side: wrapping would flip the sign."""
    mechanism = case.with_scale(2**20)
    sums = [LIMIT, -LIMIT, LIMIT - 1, -(LIMIT - 1), 2**62, -(2**62)]
    for _ in range(50):
        noisy = mechanism.add_noise(sums)
        for value, given_value in zip(noisy, sums, strict=True):
            assert -(2**63) <= value <= LIMIT
            assert abs(value - given_value) < 2**26
    # At the end of the range about half of the draws would leave it.
    ends = [mechanism.add_noise(sums)[0] for _ in range(60)]
    assert LIMIT in ends


@conforms
@pytest.mark.parametrize("beyond", [2**63, -(2**63) - 1, 10**30])
def test_values_beyond_the_range_are_refused(case, beyond):
    with pytest.raises(OverflowError):
        case.with_scale(LARGE).add_noise([0] * (case.entries - 1) + [beyond])


@conforms
def test_the_largest_scale(case):
    mechanism = case.with_scale(MAX_SCALE)
    noisy = mechanism.add_noise([2**62, -(2**62), 0, 0, 0, 0])
    assert all(-(2**63) <= value <= LIMIT for value in noisy)
    assert max(map(abs, noisy[2:])) > 2**40


# --- randomness -------------------------------------------------------------------------


@conforms
def test_noise_is_fresh_on_every_call(case):
    """400 calls, no noise twice: two of 2400 draws coincide with probability 2e-4 or so.

    Hence whole vectors are compared, which coincide with probability below 1e-50.
    """
    mechanism = case.with_scale(LARGE)
    outputs = [mechanism.add_noise([7] * case.entries) for _ in range(400)]
    assert len(set(outputs)) == 400


@conforms
def test_no_global_generator_decides_the_noise(case):
    mechanism = case.with_scale(LARGE)
    outputs = set()
    for _ in range(3):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        outputs.add(mechanism.add_noise([0] * case.entries))
    assert len(outputs) == 3


@conforms
def test_forked_processes_draw_their_own_noise(case):
    mechanism = case.with_scale(LARGE)
    parent = mechanism.add_noise([0] * case.entries)
    with get_context("fork").Pool(3) as pool:
        children = pool.map(mechanism.add_noise, [[0] * case.entries] * 3, chunksize=1)
    assert len({parent, *children}) == 4


@conforms
def test_entries_are_independent(case):
    """Rank correlations of the draws and of their sizes, between entries and between calls.

    One correlation of 3000 pairs has standard deviation 0.018. The limit, with the level divided
    by the number of correlations, is 0.11; one of 0.25 is found with probability 1 - 1e-14.
    """
    mechanism = case.with_scale(LARGE)
    outputs = np.array([mechanism.add_noise([0] * case.entries) for _ in range(3000)])
    assert not dependent(outputs)
    # Negative controls: a shared part, a shared size, and noise that lingers from call to call.
    rng = np.random.default_rng(5)
    shared = outputs[:, 1] + 0.3 * outputs[:, 0]
    assert dependent(np.column_stack([outputs[:, 0], shared]))
    assert dependent(outputs * rng.exponential(size=(3000, 1)))
    assert dependent(outputs[1:] + 0.3 * outputs[:-1])


# --- the law ----------------------------------------------------------------------------


@conforms
def test_the_law_at_release_scale(case):
    """Accept the stated scale, reject scales that are 10 % off in either direction."""
    mechanism = case.with_scale(LARGE)
    scales = mechanism.scale, mechanism.off_diagonal_scale
    for draws, scale in zip(draws_of(mechanism, DRAWS), scales, strict=True):
        if len(draws) == 0:
            continue
        cuts = LIMITS[mechanism.family].ppf(np.arange(1, 30) / 30, scale=scale)
        right = cells_of_a_continuum(mechanism.family, scale, cuts)
        assert chi_square_p(draws, right) > LEVEL
        for factor in (0.9, 1.1, math.sqrt(0.5), math.sqrt(2)):
            wrong = cells_of_a_continuum(mechanism.family, scale * factor, cuts)
            assert power(right, wrong) > 1 - 1e-9
            assert chi_square_p(draws, wrong) < LEVEL


@conforms
def test_the_law_where_it_is_visibly_discrete(case):
    """Against the exact pmf of `core.noise`, integer by integer; ±1 is 10 % of the scale or so."""
    mechanism = case.with_scale(SMALL)
    law = DISCRETE_FAMILIES[mechanism.family]
    other = {DiscreteLaplace: DiscreteGaussian, DiscreteGaussian: DiscreteLaplace}[law]
    scales = mechanism.scale, mechanism.off_diagonal_scale
    for draws, scale in zip(draws_of(mechanism, DRAWS), scales, strict=True):
        if len(draws) == 0:
            continue
        edge = 5 * scale // 2
        right = cells_of_integers(law(scale), edge)
        assert chi_square_p(draws, right) > LEVEL
        for wrong in (law(scale - 1), law(scale + 1), other(scale)):
            assert power(right, cells_of_integers(wrong, edge)) > 1 - 1e-9
            assert chi_square_p(draws, cells_of_integers(wrong, edge)) < LEVEL


def dependent(outputs):
    """Whether some rank correlation of values or of sizes, within or between calls, is large."""
    found, count = 0.0, 0
    for values in (outputs, np.abs(outputs)):
        ranks = stats.rankdata(values, axis=0)  # so that no heavy tail decides
        lagged = np.hstack([ranks[1:], ranks[:-1]])
        correlations = np.corrcoef(lagged.T)[np.triu_indices(lagged.shape[1], 1)]
        found = max(found, np.abs(correlations).max())
        count += len(correlations)
    return found > stats.norm.isf(LEVEL / (2 * count)) / math.sqrt(len(outputs) - 1)


# ---------------------------------------------------------------------------------------------
# What is particular to one of them


@settings(deadline=None)
@given(sensitivity=sensitivities, epsilon=epsilons)
def test_the_scale_is_the_smallest_that_suffices(sensitivity, epsilon):
    scale = LaplaceMechanism(sensitivity, epsilon).scale
    assert scale * epsilon >= sensitivity
    below = int(math.nextafter(float(scale), 0)) if scale > 2**53 else scale - 1
    assert below * epsilon < sensitivity


def test_verify_rejects_a_tampered_scale():
    mechanism = LaplaceMechanism(2**34, Fraction(1))
    mechanism.__dict__["scale"] = 2**34 - 2**10
    with pytest.raises(AssertionError, match="OpenDP charges"):
        mechanism.verify()


@gaussian_only
@settings(deadline=None)
@given(sensitivity=sensitivities, scale=st.integers(2**21, 2**53))
def test_rho_is_what_opendp_charges(case, sensitivity, scale):
    """Not merely at most: OpenDP's rho and the event's agree to 12 digits."""
    assume(sensitivity < 2**53)
    event = GaussianMechanism(sensitivity, scale, case.off_diagonal).event()
    charged = randomness.gaussian_measurement(scale).map(float(sensitivity))
    assert 1 / (2 * event.noise_multiplier**2) == pytest.approx(charged, rel=1e-12)


@gaussian_only
def test_a_wrong_number_of_sums_is_refused(case):
    """An entry without a place in the plan must not come out without noise."""
    mechanism = case.with_scale(LARGE)
    for count in (0, case.entries - 1, case.entries + 1):
        with pytest.raises(ValueError, match="sums"):
            mechanism.add_noise([0] * count)


@settings(deadline=None)
@given(scale=st.integers(2, 2**53))
def test_off_diagonal_scale_is_the_smallest_that_suffices(scale):
    off = GaussianMechanism(1, scale, ISOMETRIC).off_diagonal_scale
    assert 2 * off**2 >= scale**2 > 2 * (off - 1) ** 2


@settings(deadline=None)
@given(scale=st.integers(2**53, MAX_SCALE))
def test_off_diagonal_scale_of_large_scales(scale):
    off = GaussianMechanism(1, scale, ISOMETRIC).off_diagonal_scale
    assert int(float(off)) == off
    assert 2 * off**2 >= scale**2
    assert Fraction(2 * off**2, scale**2) < 1 + Fraction(1, 2**50)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1 - 1e-6])
def test_verify_looks_at_the_off_diagonal_scale_too(factor):
    class Tampered(GaussianMechanism):
        @property
        def off_diagonal_scale(self):
            return int(super().off_diagonal_scale * factor)

    GaussianMechanism(2**34, 2**36, ISOMETRIC).verify()
    with pytest.raises(AssertionError, match="OpenDP charges"):
        Tampered(2**34, 2**36, ISOMETRIC).verify()


@settings(max_examples=100, deadline=None)
@given(
    change=st.lists(st.integers(-(2**34), 2**34), min_size=6, max_size=6).filter(any),
    multiplier=st.floats(0.5, 20),
)
def test_no_change_costs_more_than_the_claim(change, multiplier):
    """Brute force over changes: Σ c²/s² with the scale of each entry, against 1/multiplier²."""
    squared = sum(c * c * (2 if off else 1) for c, off in zip(change, ISOMETRIC, strict=True))
    sensitivity = math.isqrt(squared) + 1
    scale = max(2**21, gaussian_scale(sensitivity, multiplier))
    mechanism = GaussianMechanism(sensitivity, scale, ISOMETRIC)
    scales = [mechanism.off_diagonal_scale if off else mechanism.scale for off in ISOMETRIC]
    loss = sum(Fraction(c, s) ** 2 for c, s in zip(change, scales, strict=True))
    assert loss <= 1 / Fraction(mechanism.event().noise_multiplier) ** 2


# ---------------------------------------------------------------------------------------------
# Signatures


def test_nothing_that_makes_noise_takes_a_seed():
    """Whoever can choose the noise can subtract it."""
    words = ("seed", "rng", "generator", "random", "state", "key")
    modules = [package] + [
        import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
    ]
    assert len(modules) >= 4
    seen = 0
    for module in modules:
        for _, member in inspect.getmembers(module):
            own = getattr(member, "__module__", "").startswith(package.__name__)
            if not own or not (inspect.isfunction(member) or inspect.isclass(member)):
                continue
            functions = [member]
            if inspect.isclass(member):
                functions += [f for _, f in inspect.getmembers(member, inspect.isfunction)]
            for function in functions:
                parameters = inspect.signature(function).parameters
                seen += len(parameters)
                assert not [p for p in parameters if any(word in p.lower() for word in words)]
    assert seen > 10
    for door in (publish, make_request):
        assert not [p for p in inspect.signature(door).parameters if p in words]


def test_float_up_is_what_verify_compares_with():
    """A claim that isn't a double, such as 1/3, is compared with the next double above it."""
    mechanism = LaplaceMechanism(10**9, Fraction(1, 3))
    spent = randomness.laplace_measurement(mechanism.scale).map(10**9)
    assert Fraction(1, 3) < float_up(Fraction(1, 3))
    assert spent <= float_up(Fraction(1, 3))
