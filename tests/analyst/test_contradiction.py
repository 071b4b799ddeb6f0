"""Hospitals that contradict each other are refused before anything is sampled, with the culprit."""

from __future__ import annotations

import time

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.regression.contradiction import CONTRADICTION, _farthest, _holder
from noisewise.analyst.regression.observation import choose_columns, observe
from noisewise.analyst.regression.rounds import InRounds
from noisewise.core.errors import ReleaseError
from noisewise.core.schema import Number, Schema
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

BOUNDS = {"age": Number(0, 110), "severity": Number(0, 20), "days": Number(0, 60)}


def hospital(folder, number, *, n=6000, slope=0.6, unit=1.0, epsilon=1, delta="1e-6"):
    """Patients whose ages differ by hospital, with skewed severities and errors."""
    rng = np.random.default_rng([7, number])
    age = rng.normal(55 + 2 * number, 12, n)
    severity = rng.gamma(4, 1.0, n)
    days = 20 + 0.1 * age + slope * severity + 2 * (rng.standard_exponential(n) - 1)
    table = {"age": age, "severity": unit * severity, "days": days}
    privacy = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
    request = make_request(
        Schema("people", BOUNDS),
        target="days",
        features=["age", "severity"],
        label=f"{number}",
        **privacy,
    )
    return publish(request, table, ledger=ledger_for(folder / f"{number}.db")).release


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hospitals")


@pytest.fixture(scope="module")
def alike(folder):
    return [hospital(folder, number) for number in range(3)]


NAMES = ["a.json", "b.json", "c.json", "d.json"]


def test_with_three_or_more_the_culprit_is_named_at_once(alike, folder):
    other = hospital(folder, 3, slope=-1.5)
    start = time.process_time()
    with pytest.raises(
        ReleaseError, match=r"^b.json .* contradicts the 3 others, which agree"
    ) as told:
        nw.fit([alike[0], other, *alike[1:]], names=NAMES)
    assert time.process_time() - start < 5  # it took minutes of sampling
    assert "severity is -1." in str(told.value)
    assert "--varying" in str(told.value)
    for name in ("a.json", "c.json", "d.json"):
        assert name not in str(told.value)


def test_two_contradict_each_other(alike, folder):
    other = hospital(folder, 4, slope=-1.5)
    with pytest.raises(ReleaseError, match=r"a.json .* and b.json .* contradict each other"):
        nw.fit([alike[0], other], names=NAMES[:2])


def test_two_pairs_are_nobodys_fault(alike, folder):
    others = [hospital(folder, number, slope=-1.5) for number in (5, 6)]
    with pytest.raises(ReleaseError, match="not because of a single one"):
        nw.fit([*alike[:2], *others], names=NAMES)


def test_coefficients_may_vary_all_the_same(alike, folder):
    posterior = nw.fit([*alike, hospital(folder, 7, slope=-1.5)], varying=True, seed=1, draws=300)
    assert posterior.of_holder(posterior.holders.names[3]).summary().rows["severity"].upper < 0


def test_a_wrong_unit_is_noticed_at_pure_epsilon_too(folder):
    """Its severity is so small that noise hides how it varies; what the others say doesn't fit."""
    releases = [
        hospital(folder, 10 + k, n=20_000, unit=unit, delta=None)
        for k, unit in enumerate((1.0, 1.0, 0.1))
    ]
    with pytest.raises(ReleaseError, match=r"^c.json .* contradicts the 2 others"):
        nw.fit(releases, names=NAMES[:3])


def distance(releases):
    columns, names = choose_columns(releases)
    last = InRounds.of(releases, columns, names)
    if last is None:
        _, seen = observe(releases)
        maps = [np.eye(len(seen[0].values))] * len(seen)
    else:
        seen, maps = last.observations, last.maps
    return _farthest([_holder(one, K, "") for one, K in zip(seen, maps, strict=True)])


@pytest.mark.slow
def test_holders_that_agree_are_not_refused(folder):
    """Of all sizes, budgets and kinds of noise, with skewed errors: none of 24 groups is near it.

    If distances were those of a normal law, the farthest of some five holders in 24 groups would
    be beyond 4.5 with probability 1e-3; rows that are moved in add to it.
    """
    rng, found = np.random.default_rng(3), []
    for group in range(24):
        pure = bool(rng.random() < 0.3)
        releases = [
            hospital(
                folder,
                100 + 10 * group + k,
                n=int(np.exp(rng.uniform(np.log(1500), np.log(30_000)))),
                epsilon=str(rng.choice(["0.3", "1", "3"])),
                delta=None if pure or rng.random() < 0.2 else "1e-6",
            )
            for k in range(int(rng.integers(2, 6)))
        ]
        found.append(distance(releases))
    assert max(found) < CONTRADICTION
    assert np.median(found) < 3


def test_a_release_that_does_not_go_with_the_others_is_left_out_on_request(alike, folder):
    other = Schema("people", {**BOUNDS, "age": Number(0, 120)})
    rng = np.random.default_rng(5)
    table = {"age": rng.normal(55, 12, 800), "severity": rng.gamma(4, 1, 800)}
    table["days"] = rng.normal(20, 2, 800)
    request = make_request(other, target="days", features=["age", "severity"], epsilon=1)
    odd = publish(request, table, ledger=ledger_for(folder / "odd.db")).release
    releases = [odd, *alike]
    with pytest.raises(ReleaseError, match=r"b.json .* declares column 'age' differently"):
        nw.fit(releases, names=NAMES)
    posterior = nw.fit(releases, names=NAMES, skip_unusable=True, seed=1, draws=300)
    assert len(posterior.info.n) == 3
    assert posterior.warnings[0].startswith("left out: a.json ")
    posterior.report(folder / "left.html")
    assert "Left out: a.json" in (folder / "left.html").read_text(encoding="utf-8")
    everything = nw.fit(alike, names=NAMES[:3], skip_unusable=True, seed=1, draws=300)
    assert not any("left out" in text for text in everything.warnings)
