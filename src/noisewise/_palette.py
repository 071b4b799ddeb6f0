"""The colours of every picture and page: one meaning, one colour.

What accounts for the noise is blue and what ignores it is orange, in reports, plots, studies, the
README and the site. Both can be read as text on white (contrast above 4.5) and stay apart for
colour-blind readers and in grey print. `OTHERS` are for what has no such meaning (Okabe & Ito).
"""

from __future__ import annotations

AWARE = "#00609C"
NAIVE = "#B34700"
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
GREY = "#999999"
TRUTH = "#000000"


def css() -> str:
    """The two colours with a meaning, as variables of a style sheet."""
    return f":root {{ --aware: {AWARE.lower()}; --naive: {NAIVE.lower()}; }}"
