"""Tables 1 and 2 of Alparslan, Yıldırım & Birbil (2023), for the two data sets that we have."""

from __future__ import annotations

METHODS = ("normal_x", "fixed_s", "fixed_s_fast", "bs_distributed", "ada_ssp")

# Mean prediction MSE over 50 runs (table 1).
_MEANS = {
    ("PowerPlant", 1): (0.0129, 0.0129, 0.0129, 0.0128, 0.0139),
    ("BikeSharing", 1): (0.0024, 0.0021, 0.0021, 0.0020, 0.0107),
    ("PowerPlant", 5): (0.0133, 0.0134, 0.0134, 0.0136, 0.0235),
    ("BikeSharing", 5): (0.0174, 0.0045, 0.0045, 0.0086, 0.0382),
    ("PowerPlant", 10): (0.0142, 0.0143, 0.0143, 0.0143, 0.0351),
    ("BikeSharing", 10): (0.0812, 0.0082, 0.0082, 0.0137, 0.0526),
}
# 90% confidence intervals of those means (table 2), in units of 0.0001.
_INTERVALS = {
    ("PowerPlant", 1): ((128, 129), (128, 129), (128, 129), (128, 129), (137, 140)),
    ("BikeSharing", 1): ((21, 27), (18, 24), (18, 24), (17, 22), (106, 108)),
    ("PowerPlant", 5): ((132, 135), (132, 136), (132, 136), (135, 138), (234, 236)),
    ("BikeSharing", 5): ((137, 210), (41, 49), (40, 49), (76, 95), (380, 383)),
    ("PowerPlant", 10): ((139, 145), (140, 146), (140, 146), (141, 146), (349, 353)),
    ("BikeSharing", 10): ((671, 954), (72, 92), (72, 92), (116, 158), (524, 527)),
}


def published(label: str, J: int, method: str) -> tuple[float, float, float] | None:
    """The paper's mean and interval, None if it has none."""
    if method not in METHODS or (label, J) not in _MEANS:
        return None
    i = METHODS.index(method)
    low, high = _INTERVALS[label, J][i]
    return _MEANS[label, J][i], low / 1e4, high / 1e4
