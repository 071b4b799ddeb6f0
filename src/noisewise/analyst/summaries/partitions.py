"""How much r repeated partitions narrow an average over blocks.

Let ξ_j be the standardised estimate of block j at b = β, standard normal, and ψ(ξ_j) what the block
contributes, with variance v and A = Cov(ψ(ξ), ξ). The full data's z-score is Σ_j ξ_j/√M whatever
the partition, so that ψ = E ψ + A ξ + R, R uncorrelated with ξ, splits the average of one partition
into A z/√M, the same for all partitions, and the average of R, of variance (v - A²)/M.

In two partitions drawn independently, two blocks share about n/M² rows, so their ξ have
correlation 1/M, and R has no linear part: Cov(R, R') is at most of order 1/M² for each of the M²
pairs, hence of relative order 1/M for the sums. Up to that order the R of r partitions average out
like r independent ones, and the average of all of them has M times the variance

    v_r = A² + (v - A²)/r.

`tests/analyst/test_summaries.py` compares it with partitions of rows.
"""

from __future__ import annotations

from typing import NamedTuple


class Law(NamedTuple):
    """First moments of what one block contributes, at b = β.

    Parameters
    ----------
    mean, variance : float
    slope : float
        A = Cov(ψ(ξ), ξ), which is also E ψ'(ξ): what the average moves when b does.
    """

    mean: float
    variance: float
    slope: float

    def spread(self, partitions: int) -> float:
        """v_r, M times the variance of the average over M blocks and r partitions."""
        common = self.slope**2
        return common + (self.variance - common) / partitions
