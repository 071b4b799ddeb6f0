"""Network Releases that nobody could have made, or that are too large: refused, and quickly."""

import time
from fractions import Fraction

import numpy as np
import pytest

from noisewise.analyst.network import per_table
from noisewise.analyst.network.entropy import entropy_of, junction_tree
from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.network.layout import Layout
from noisewise.analyst.network.observed import observe
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.network.graph import Parities
from noisewise.core.kinds.network.release import NetworkRelease, NoisyCounts, NoisyParities
from noisewise.core.privacy import Claim, PureEvent

from .network_oracle import network

FEW = {"draws": 10, "chains": 1, "seed": 1}


def release(made, content, n, epsilon="1"):
    mechanism = "fourier" if isinstance(content, NoisyParities) else "laplace"
    claim, event = Claim(Fraction(epsilon)), PureEvent(Fraction(epsilon))
    return NetworkRelease(made, mechanism, content, n=n, claim=claim, event=event)


def fourier(arities, parents):
    made = network(arities, parents)
    size = len(Parities(made))
    return release(made, NoisyParities(tuple(range(size)), float(size), size, 0.0, 0.9), 100)


@pytest.mark.parametrize("value", [-(2**63), -100, 1100, 2**63 - 1])
@pytest.mark.parametrize("method", ["joint", "per_table"])
def test_one_count_of_two_must_be_possible(value, method):
    made = network({"a": 2}, {"a": []})
    with pytest.raises(ReleaseError, match="forged"):
        fit_network(release(made, NoisyCounts({"a": (value,)}, 1.0, 1), 1000), method=method, **FEW)


def test_a_root_of_many_rows_and_much_noise_needs_little_memory():
    made = network({"a": 2}, {"a": []})
    forged = release(made, NoisyCounts({"a": (0,)}, 2.0**29, 1), 2**30, "2e-9")
    posterior = fit_network(forged, method="per_table", **FEW)
    assert np.isfinite(posterior.theta).all()


def test_steps_of_a_root_change_nothing(monkeypatch):
    made = network({"a": 2}, {"a": []})
    given = release(made, NoisyCounts({"a": (300,)}, 40.0, 1), 1000)
    means = []
    for most in (10**6, 300):
        monkeypatch.setattr(per_table, "MAX_ROOT_COUNTS", most)
        words = {"method": "per_table", "prior": 1.0, "chains": 1, "seed": 1}
        posterior = fit_network(given, draws=20_000, **words)
        means.append((posterior.theta.mean(axis=(0, 1))[1], posterior.theta.std(axis=(0, 1))[1]))
    # The standard deviation is about 0.06, so the error of a mean is 0.0004.
    assert means[0] == pytest.approx(means[1], abs=0.004)


def test_families_with_too_many_parities_are_refused():
    with pytest.raises(RequestError, match="method='plugin'"):
        fit_network(fourier({"a": 256, "b": 256}, {"a": [], "b": ["a"]}), **FEW)


def test_tables_too_large_to_enumerate_are_refused():
    made = network({"a": 300, "b": 300}, {"a": [], "b": ["a"]})
    content = NoisyCounts({"a": (3,) * 300, "b": (1,) * 90_000}, 20.0, 4)
    with pytest.raises(RequestError, match="method='joint'"):
        fit_network(release(made, content, 1000), method="per_table", **FEW)


def test_parities_as_forms_of_cells():
    given = fourier({"a": 3, "b": 5}, {"a": [], "b": ["a"]})
    layout = Layout(given.network)
    forms = {m.names: m.matrix for m in observe(given, layout).measurements}
    expected = [
        [((a & x).bit_count() + (b & y).bit_count()) % 2 for a in range(3) for b in range(5)]
        for x in range(1, 4)
        for y in range(1, 8)
    ]
    assert sorted(map(tuple, forms[0, 1])) == sorted(map(tuple, expected))


def test_the_structure_of_two_thousand_nodes_is_found_in_seconds():
    """It took a quarter of an hour when every pass looked at all pairs of families."""
    names = [f"x{i}" for i in range(2000)]
    parents = {name: names[max(i - 1, 0) : i] for i, name in enumerate(names)}
    layout = Layout(network(dict.fromkeys(names, 2), parents))
    start = time.process_time()
    entropy = entropy_of(layout, lambda _: True)
    assert time.process_time() - start < 30
    assert entropy.acyclic
    assert entropy.kappa[5, 6] == -1
    assert entropy.kappa[5,] == 1
    assert junction_tree([(0, 1), (1, 2), (0, 2)]) is None
    assert junction_tree([(0, 1), (1, 2), (0, 2), (0, 1, 2)]) is not None
