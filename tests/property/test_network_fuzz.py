"""Damaged network Releases raise ReleaseError and nothing else, whatever the damage."""

import copy
import json
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.draws import RegressionSampleRelease
from noisewise.core.kinds.network.graph import Network, Parities
from noisewise.core.kinds.network.release import (
    NetworkRelease,
    NoisyCounts,
    NoisyParities,
    TableDraws,
)
from noisewise.core.privacy import Claim, PureEvent
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.draws import make_regression_sample_request

SCHEMA = Schema("d", {"a": Category(("0", "1"), "0"), "b": Category(("x", "y", "z"), "x")})
NETWORK = Network.make(SCHEMA, {"b": ["a"]})
ONE = Fraction(1)


def release(mechanism, content):
    return NetworkRelease(NETWORK, mechanism, content, n=9, claim=Claim(ONE), event=PureEvent(ONE))


def regression():
    schema = Schema("d", {"x": Number(0, 1), "y": Number(0, 1)})
    words = {"target": "y", "features": ["x"], "noise_sd": 1, "epsilon": 1}
    made = make_regression_sample_request(schema, **words)
    return RegressionSampleRelease(
        made.planned.law, ((1, 2),), n=5, claim=Claim(ONE), event=PureEvent(ONE)
    )


DRAW = {"a": (2**23,), "b": (2**23,) * 4}
PRIOR = {"a": ONE, "b": ONE}
DOCUMENTS = [
    made.document
    for made in (
        release("laplace", NoisyCounts({"a": (4,), "b": (1, 2, 3, 4, 5, 6)}, 3.0, 3)),
        release("fourier", NoisyParities((1,) * len(Parities(NETWORK)), 9.0, 5, 1.0, 0.9)),
        release("map", TableDraws((DRAW,), "posterior", 2**19, Fraction(1, 100), PRIOR)),
        regression(),
    )
]

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["1e999", "1/0", "-1", "nan", "a", "b", "posterior", "grid"]),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "kind", "type"]), st.integers(0, 3), max_size=2),
)


def places(document, path=()):
    yield path
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_any_damage_is_a_release_error(data):
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from([p for p in places(document) if p]))
        parent = document
        for key in path:
            parent = parent[key]
        if data.draw(st.booleans()) and isinstance(parent, dict):
            del parent[last]
        else:
            parent[last] = data.draw(ODD)
    try:
        text = json.dumps({**document, "digest": digest_of(document)})
    except RecursionError:
        return
    try:
        made = release_from_text(text)
    except ReleaseError:
        return
    assert release_from_text(made.to_text()) == made  # harmless damage: another valid Release
