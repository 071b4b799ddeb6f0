"""Files of version 0.1.0, written before anything here changed, are read with the same values.

`data/written_by_0_1/write.py` wrote them, and the numbers in `expected.json` beside them, under
Python 3.11.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.core.kinds.summary.mechanisms import Conjugate, Flat, GPrior
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.rounds import RoundsRequest

OLD = Path(__file__).parent / "data" / "written_by_0_1"
REQUESTS = json.loads((OLD / "requests.json").read_text("ascii"))
EXPECTED = json.loads((OLD / "expected.json").read_text("ascii"))
MAKERS = {
    "regression": nw.make_request,
    "draws": make_regression_sample_request,
    "summary": nw.make_summary_request,
    "network": nw.make_network_request,
}
POSTERIORS = {"Flat": Flat, "GPrior": GPrior, "Conjugate": Conjugate}


def test_nothing_is_left_out():
    for folder in ("releases", "ledgers", "posteriors"):
        assert {path.stem for path in (OLD / folder).iterdir()} == set(EXPECTED[folder])
    assert set(REQUESTS) == set(EXPECTED["releases"])


def numbers_of(release):
    if hasattr(release, "measurements"):
        return [value for part in release.measurements for value in part.values[:3]]
    if hasattr(release, "law"):
        return list(release.draws[0])
    if hasattr(release, "blocks"):
        return list(release.values)
    if release.has_counts:
        return [x for node in release.network.nodes for x in release.counts(node).flat]
    return [x for table in release.tables(0).values() for x in np.ravel(table)]


@pytest.mark.parametrize("name", EXPECTED["releases"])
def test_releases(name):
    path, expected = OLD / "releases" / f"{name}.json", EXPECTED["releases"][name]
    release = nw.load_release(path)
    assert type(release).__name__ == expected["type"]
    assert release.digest == expected["digest"]
    assert (release.n, release.label) == (expected["n"], expected["label"])
    claim = release.claim
    assert [None if x is None else str(x) for x in (claim.epsilon, claim.delta, claim.rho)] == (
        expected["claim"]
    )
    assert numbers_of(release) == expected["numbers"]
    assert release.to_text() == path.read_text("utf-8")


def request_of(name):
    described = REQUESTS[name]
    words = dict(described["words"])
    if "posterior" in words:
        kind, *numbers = words["posterior"]
        words["posterior"] = POSTERIORS[kind](
            *(tuple(x) if isinstance(x, list) else x for x in numbers)
        )
    return MAKERS[described["kind"]](nw.Schema.from_dict(described["schema"]), **words)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_request_is_the_same_request(name):
    """Another key, and everybody's ledger would charge for the same Release again."""
    request = request_of(name)
    if isinstance(request, RoundsRequest):  # those words had one round then
        request = request.former
    assert request.key == REQUESTS[name]["key"]


@pytest.fixture
def ledger(request, tmp_path):
    """A copy, with the permissions that a ledger has (a checkout gives others)."""
    copy = tmp_path / "budget.db"
    shutil.copyfile(OLD / "ledgers" / f"{request.param}.db", copy)
    copy.chmod(0o600)
    return copy


def holds(found, expected):
    """Whether everything that is expected is there; a later version may say more."""
    if isinstance(expected, dict):
        return all(key in found and holds(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(holds, found, expected))
    return found == expected


def accounts(path):
    with nw.Ledger(path) as book:
        return [account.to_json() for account in book.accounts()]


@pytest.mark.parametrize(
    ("ledger", "name"), [(name, name) for name in EXPECTED["ledgers"]], indirect=["ledger"]
)
def test_ledgers(ledger, name):
    expected = EXPECTED["ledgers"][name]
    assert expected
    for account in expected:
        if account.pop("cap_is_implicit"):  # nobody chose that cap: it counts as none now
            account |= {"cap_epsilon": None, "cap_delta": None, "remaining_epsilon": None}
    assert holds(accounts(ledger), expected)


def income(**words):
    schema = nw.Schema.from_dict({**REQUESTS["laplace"]["schema"], "dataset": "people"})
    words = {**REQUESTS["laplace"]["words"], "epsilon": "0.1", **words}
    return nw.make_request(schema, **words)


def people(rows=50):
    age = np.linspace(18, 90, rows)
    return {"age": age, "region": ["süd", "east"] * (rows // 2), "income": 1000 * age}


@pytest.mark.parametrize("ledger", ["set_cap", "implicit_cap", "voided"], indirect=True)
def test_what_an_old_ledger_holds_is_handed_out_again_at_no_cost(ledger):
    before = accounts(ledger)
    assert nw.publish(income(), people(), ledger=ledger).repeated
    assert accounts(ledger) == before


@pytest.mark.parametrize("ledger", ["pending"], indirect=True)
def test_a_request_completes_under_the_charge_that_an_old_version_left(ledger):
    (before,) = accounts(ledger)
    assert not nw.publish(income(), people(), ledger=ledger).repeated
    (after,) = accounts(ledger)
    assert after["spent_epsilon"] == before["spent_epsilon"]
    assert [charge["status"] for charge in after["charges"]] == ["published", "pending"]


@pytest.mark.parametrize("name", EXPECTED["posteriors"])
def test_posteriors(name):
    path, expected = OLD / "posteriors" / f"{name}.nc", EXPECTED["posteriors"][name]
    posterior = nw.load_posterior(path)
    names = posterior.nodes if name.startswith("network") else posterior.names
    assert set(names) == set(expected["means"])
    assert posterior.info.method == expected["method"]
    assert list(posterior.info.digests) == expected["digests"]
    for each in names:
        means = posterior.draws(each).mean(axis=(0, 1))
        np.testing.assert_allclose(means, expected["means"][each], rtol=1e-12)
