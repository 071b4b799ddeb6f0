"""Every attack that broke something once, carried out again."""

from __future__ import annotations

import pytest

from studies import mended


@pytest.mark.parametrize("name", mended.scenarios())
def test_the_attack_fails(name, tmp_path):
    try:
        broken = mended.scenarios()[name](tmp_path)
    except mended.Unavailable as reason:
        pytest.skip(str(reason))
    assert broken is None
