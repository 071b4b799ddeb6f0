"""What an audit of a request found, in words and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from noisewise.audit.noise import DrawCheck, NoiseCheck
from noisewise.holder.requests.draws import RegressionSampleRequest
from noisewise.holder.requests.network import NetworkRequest
from noisewise.holder.requests.summary import SummaryRequest

if TYPE_CHECKING:
    from noisewise.audit.request import ReleaseAudit

_REPORT = "Do not publish; report this as a bug."


def document_of(found: ReleaseAudit, caught: dict[float, float]) -> dict[str, Any]:
    """Everything as JSON; `caught` has the chances of catching so much of the noise."""
    result, noise = found.result, found.noise
    return {
        "claim": found.request.claim.to_json(),
        "passed": found.passed,
        "epsilon_claimed": result.epsilon,
        "delta": result.delta,
        "epsilon_lower": result.epsilon_lower,
        "epsilon_lower_if_gaussian": None if result.mu is None else found.epsilon_shown,
        "mu_claimed": result.mu,
        "mu_lower": None if result.mu is None else result.mu_lower,
        "confidence": result.confidence,
        "held_out_runs": result.held_out,
        "runs_in_region": [result.likelier, result.rarer],
        "share_of_sensitivity": found.pair.attained,
        "only_values_differ": found.only_values_differ,
        "noise": None if noise is None else {**asdict(noise), "passed": noise.passed},
        "chance_of_catching": {str(factor): chance for factor, chance in caught.items()},
    }


def words_of(found: ReleaseAudit, caught: dict[float, float]) -> list[str]:
    """Everything in words, a line each."""
    schema, result = found.request.schema, found.result
    unit = "one row" if schema.max_rows_per_unit == 1 else "one person's rows"
    change = "replaced" if schema.neighbours == "replace_one" else "added or removed"
    lines = [
        f"Claim: {found.request.claim}, for {unit} {change}; {_mechanism(found.request)}.",
        f"Tried: two synthetic data sets that differ by {100 * found.pair.attained:.0f}% of the "
        "stated sensitivity, made from the schema alone. Your data and ledger were not opened.",
        f"Found: epsilon is at least {found.epsilon_shown:.3f} with {100 * result.confidence:g}% "
        "confidence" + (f" (at delta = {result.delta:g})" if result.delta else "") + ".",
        f"  {result.likelier:,} of {result.held_out:,} Releases of one data set fell into a region "
        f"chosen beforehand, {result.rarer:,} of {result.held_out:,} of the other.",
    ]
    if result.mu is not None:
        lines.append(
            f"  As Gaussian noise: the two are at least {result.mu_lower:.3f} standard deviations "
            f"apart, where the claim allows {result.mu:.3f}."
        )
    lines.append(_noise(found.noise))
    lines += _violations(found)
    if found.passed:
        odds = math.exp(min(result.epsilon, 50.0))
        lines.append(
            f"Meaning: no violation found. Whoever sees the Release may change the odds on {unit} "
            f"by a factor of {odds:.3g} at most, if the claim holds, and the best attack tried "
            f"here reached {math.exp(found.epsilon_shown):.3g}. This is evidence, not proof; the "
            "proofs are beside the mechanisms."
        )
    return [*lines, _sight(found.noise, caught)]


def _mechanism(request: Any) -> str:
    if isinstance(request, SummaryRequest):
        times = f", {request.partitions} times over" if request.partitions > 1 else ""
        return f"{request.mechanism.name} of {request.blocks:,} blocks{times}"
    if isinstance(request, NetworkRequest):
        kind = "" if request.kind is None else f" ({request.kind})"
        return f"{request.mechanism}{kind} for a network of {len(request.network.nodes)} nodes"
    if isinstance(request, RegressionSampleRequest):
        return f"posterior draws, {request.planned.draws} in all"
    return f"{request.mechanism} noise"


def _noise(noise: NoiseCheck | DrawCheck | None) -> str:
    if noise is None:
        return (
            "Law: not looked at, because a posterior of so many coefficients cannot be simulated; "
            "an audit of fewer features looks at it."
        )
    if isinstance(noise, NoiseCheck):
        return (
            f"Noise: {100 * noise.smallest:.0f}% to {100 * noise.largest:.0f}% of the stated scale "
            f"over all published values; the largest correlation of two is {noise.correlation:.2f}."
        )
    shared = (
        f"; the largest correlation of two is {noise.correlation:.2f}" if noise.correlation else ""
    )
    return (
        f"Law: the draws are off their stated distribution by {noise.distance:.3f} at most, where "
        f"{noise.limit:.3f} would be noticed{shared}."
    )


def _violations(found: ReleaseAudit) -> list[str]:
    lines, noise, result = [], found.noise, found.result
    if noise is not None and not noise.passed:
        if isinstance(noise, DrawCheck):
            what = "share their randomness" if noise.enough else "do not follow their stated law"
            lines.append(
                f"VIOLATED: the draws {what}. Sound draws would look like that once in a million "
                f"audits. {_REPORT}"
            )
        else:
            what = "less noise than stated" if not noise.enough else "noise that values share"
            lines.append(
                f"VIOLATED: there is {what}. Sound noise would look like that once in a million "
                f"audits. {_REPORT}"
            )
    if not found.only_values_differ:
        lines.append(
            "VIOLATED: the two published files differ in more than their noisy values, so "
            f"something beside them depends on the rows. {_REPORT}"
        )
    if not result.passed:
        lines.append(
            "VIOLATED: that is more than claimed. A true claim would be called violated with "
            f"probability {1 - result.confidence:.2g} at most. {_REPORT}"
        )
    return lines


def _sight(noise: NoiseCheck | DrawCheck | None, caught: dict[float, float]) -> str:
    half, quarter = caught[0.5], caught[0.25]
    more = " More --runs see more." if half < 0.95 else ""
    if isinstance(noise, NoiseCheck):
        return (
            f"Sight: noise below {100 * noise.blind_above:.0f}% of the stated scale would have "
            "been noticed. By telling people apart alone, half of the noise is noticed in "
            f"{100 * half:.0f}% of cases and a quarter of it in {100 * quarter:.0f}%, which is "
            f"what counts for a sensitivity that is too small.{more}"
        )
    return (
        "Sight: by telling people apart alone, draws at twice the stated epsilon are noticed in "
        f"{100 * half:.0f}% of cases and at four times in {100 * quarter:.0f}%, which is what "
        f"counts for a sensitivity that is too small.{more}"
    )
