"""Ten thousand damaged files: a clear error or a right result, never a crash, never a charge.

5,000 Releases, 2,500 schemas and 2,500 CSV files, damaged in bytes and in structure. The seeds are
fixed so that a failure can be repeated, not because others fail.
"""

from __future__ import annotations

import copy
import json
import random
import time
from fractions import Fraction

import numpy as np
import pytest

from noisewise.core.design import Box
from noisewise.core.document import digest_of
from noisewise.core.errors import DataError, NoisewiseError, ReleaseError, SchemaError
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Schema
from noisewise.core.statistics import SecondMoments
from noisewise.core.yaml_files import PlainYamlError, parse_yaml, schema_text
from noisewise.holder.engines import open_source
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from noisewise.holder.rows.sums import SumPlan

from ..releases import EXAMPLES, example_request, release_of

SLOWEST = 10.0  # seconds for one file; all of them take milliseconds

ODD_VALUES = [
    *(None, True, False, 0, -1, 1.5, 1e308, 10**30, -(10**30), 2**53 + 1, "", "x", "1", "NaN"),
    *("1e999999999", "9" * 5000, "\x00", "…" * 300, [], {}, [[]], [None], {"type": "pure"}),
]


def damaged_bytes(rng, data):
    """One to four small accidents in a byte string."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        at, length = rng.randrange(len(data)), rng.choice([1, 1, 1, 2, 5, 40])
        accident = rng.choice(["flip", "delete", "insert", "repeat", "cut", "token"])
        if accident == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif accident == "delete":
            del data[at : at + length]
        elif accident == "insert":
            data[at:at] = rng.randbytes(length)
        elif accident == "repeat":
            data[at:at] = data[at : at + length] * rng.choice([1, 2, 50])
        elif accident == "cut":
            del data[at:]
        else:
            tokens = [b"NaN", b"1e400", b"-", b'"', b",", b"\n", b"{", b"}", b"null", b"\r\n", b""]
            data[at : at + length] = rng.choice(tokens)
    return bytes(data)


def places(document, path=()):
    """Every position in a nested structure."""
    yield path
    if isinstance(document, dict | list):
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in pairs:
            yield from places(value, (*path, key))


def damaged_structure(rng, document):
    """One to three values replaced, removed, renamed or swapped."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([p for p in places(document) if p])
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        key = path[-1]
        change = rng.choice(["replace", "replace", "remove", "rename", "nudge"])
        if change == "remove":
            del parent[key]
        elif change == "rename" and isinstance(parent, dict):
            parent[str(key) + rng.choice(["", "x", " "])] = parent.pop(key)
        elif change == "nudge" and isinstance(parent[key], int | float):
            parent[key] = parent[key] * rng.choice([-1, 2, 0.5]) + rng.choice([0, 1])
        else:
            parent[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return document


def short(error):
    """One message that a person can read, however large the damage."""
    return len(str(error)) < 600


class Watch:
    """Fails a test when one file takes too long."""

    def __enter__(self):
        self.start = time.process_time()

    def __exit__(self, *exc):
        assert time.process_time() - self.start < SLOWEST


@pytest.fixture(scope="module")
def releases():
    return [release_of(example_request(**changes)) for changes in EXAMPLES.values()]


def test_2500_releases_damaged_in_bytes(releases):
    rng = random.Random(1)
    refused = 0
    for i in range(2500):
        release = releases[i % len(releases)]
        text = damaged_bytes(rng, release.to_text().encode()).decode("utf-8", "replace")
        with Watch():
            try:
                read = Release.from_text(text)
            except ReleaseError as error:
                refused += 1
                assert short(error)
            else:
                assert read == release  # the accident hit white space
    assert refused > 2000


def test_2500_releases_damaged_in_structure_with_a_valid_digest(releases):
    rng = random.Random(2)
    refused = 0
    for i in range(2500):
        document = damaged_structure(rng, releases[i % len(releases)].document)
        try:
            document["digest"] = digest_of(document)
            text = json.dumps(document)
        except (ValueError, TypeError):
            continue
        with Watch():
            try:
                read = Release.from_text(text)
            except ReleaseError as error:
                refused += 1
                assert short(error)
            else:
                assert Release.from_text(read.to_text()) == read
    assert refused > 1500


SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, "no", 3, true], reference: north}
  income: {type: number, lower: 0, upper: 2.0e5}
neighbours: replace_one
max_rows_per_unit: 1
missing: {age: 40}
"""


def test_2500_schemas():
    rng = random.Random(3)
    refused = 0
    for i in range(2500):
        with Watch():
            try:
                if i % 2:
                    text = damaged_bytes(rng, SCHEMA.encode()).decode("utf-8", "replace")
                    schema = Schema.from_dict(parse_yaml(text))
                else:
                    schema = Schema.from_dict(damaged_structure(rng, parse_yaml(SCHEMA)))
            except (PlainYamlError, SchemaError) as error:
                refused += 1
                assert short(error)
            else:
                assert Schema.from_dict(parse_yaml(schema_text(schema))) == schema
    assert refused > 1200


def test_1000_csv_files(tmp_path):
    rng, rows = random.Random(4), np.random.default_rng(4)
    people = "age,region,income\n" + "".join(
        f"{a:.2f},{r},{i:.0f}\n"
        for a, r, i in zip(
            rows.uniform(10, 100, 20),
            rows.choice(["north", "no", "3", "true"], 20),
            rows.uniform(-1e4, 3e5, 20),
            strict=True,
        )
    )
    schema = Schema.from_dict({**parse_yaml(SCHEMA), "missing": "error"})
    request = make_request(schema, target="income", features=["age", "region"], epsilon=1)
    plan = SumPlan(request.design, Box(), (SecondMoments(request.design),))
    path = tmp_path / "people.csv"
    refused = 0
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("people", Fraction(1), Fraction(0))
        for _ in range(1000):
            path.write_bytes(damaged_bytes(rng, people.encode()))
            with Watch():
                outcomes = []
                for engine in ("stream", "duckdb"):
                    try:
                        outcomes.append(open_source(path, engine=engine).sums(plan))
                    except DataError as error:
                        assert short(error)
                        outcomes.append("refused")
                assert outcomes[0] == outcomes[1]  # the same integers, or both refuse
                if outcomes[0] == "refused":
                    refused += 1
                    if refused % 8 == 0:  # the ledger writes to disk for each: not all of them
                        with pytest.raises(NoisewiseError):
                            publish(request, path, ledger=ledger)
        assert refused > 800
        # One request, so one charge, which is pending: nothing was published.
        (account,) = ledger.accounts()
        assert account.spent_epsilon == 1
        assert [one.status for one in account.charges] == ["pending"]
