"""`noisewise audit`: try to find out more than a request claims to give away."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli.options import (
    ASKED,
    JSON,
    KINDS,
    REGRESSION,
    Option,
    asked,
    expert,
    flag,
    is_given,
    option,
    with_options,
)
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.audit import ReleaseAudit
    from noisewise.audit.challenge import DrawCheck, NoiseCheck
    from noisewise.holder.requests.base import Publishable
    from noisewise.holder.requests.file import Asked

VIOLATED = 8  # exit code

_COMMANDS = {
    "regression": "release",
    "summary": "release-summary",
    "network": "release-network",
    "draws": "sample-regression",
}
# Options that no other kind has, and one of which is always given.
_MARKS = {
    "summary": ("ask", "coefficients"),
    "network": ("graph", "edges", "naive_bayes"),
    "draws": ("noise_sd",),
}
_PANELS = {"summary": "Block summaries", "network": "Networks", "draws": "Draws of coefficients"}


def _options() -> list[Option]:
    """Those of all publishing commands, each once; a label changes nothing about an audit."""
    found = {each.name: each for each in (*ASKED, *REGRESSION) if each.name != "label"}
    for kind, panel in _PANELS.items():
        for each in KINDS[kind]:
            if each.name not in found and each.name != "label":
                of, info = each.annotation.__origin__, each.annotation.__metadata__[0]
                found[each.name] = option(each.name, of, info.help, panel=panel)
    return list(found.values())


@with_options(
    *_options(),
    JSON,
    option("runs", int, "Releases of each data set; more see smaller mistakes.", least=40),
    expert("confidence", float, "1 - chance of calling a true claim violated.", default=0.99),
)
def audit(runs: int | None, confidence: float, as_json: bool, **given: Any) -> None:
    """Audit the path from rows to a Release for your request, before you trust it with data.

    Two synthetic data sets that differ in one person as much as your schema allows are released
    many times, and the noise is tried on: how well can outputs tell them apart? That bounds
    epsilon from below. A bound above the claim is a bug, and the exit code is 8. A bound below it
    is no proof. Neither your data nor your ledger is opened.

    Give the request file, or the options that you would give to `release`, `release-summary`,
    `release-network` or `sample-regression`; which of them it is follows from the options.

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --epsilon 1

    Example: noisewise audit --schema schema.yaml --family logistic --target disease --features
    age,region --epsilon 1 --delta 1e-6

    Example: noisewise audit --schema schema.yaml --target income --features age,hours
    --ask "hours < 0" --rows 20000 --epsilon 1

    Example: noisewise audit --schema schema.yaml --naive-bayes disease --epsilon 1

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --noise-sd 20000 --epsilon 1
    """
    from noisewise.audit import RUNS, audit_release, challenge_of, chance_of_catching

    request = audited(**given).make()
    request.verify()
    trials, show = runs or RUNS, sys.stderr.isatty()
    challenge = challenge_of(request)
    with progress_bar("releasing", unit="runs", show=show) as report:
        found = audit_release(challenge, runs=trials, confidence=confidence, report=report)
    caught = {
        factor: chance_of_catching(challenge, factor, runs=trials, confidence=confidence)
        for factor in (0.5, 0.25)
    }
    if as_json:
        typer.echo(json.dumps(_document_of(found, caught)))
    else:
        for line in _words_of(found, caught):
            typer.echo(line)
    if not found.passed:
        raise typer.Exit(VIOLATED)


# --- which request --------------------------------------------------------------------------------


def audited(**given: Any) -> Asked:
    """What these options, and a request file, describe.

    Raises
    ------
    RequestError
        If they belong to different commands.
    """
    from noisewise.holder.requests.file import KEYS, read_asked

    named = ("schema", "request", "save_request")
    words = [name for name, value in given.items() if is_given(value) and name not in named]
    request = given["request"]
    kind = _kind(words) if request is None else read_asked(request).kind
    for name in words:
        if name not in KEYS[kind]:
            raise RequestError(
                f"{name}: {_because(kind, words, request)}, which has no such option; leave it out"
                + ("" if request is not None else _remedy(name))
            )
    return asked(kind, **given)


def _kind(words: list[str]) -> str:
    found = [(kind, name) for kind, marks in _MARKS.items() for name in marks if name in words]
    for kind, name in found[1:]:
        if kind != found[0][0]:
            raise RequestError(
                f"{name}: belongs to `noisewise {_COMMANDS[kind]}`, and {flag(found[0][1])} to "
                f"`noisewise {_COMMANDS[found[0][0]]}`; an audit is of one request, so leave one "
                "out"
            )
    return found[0][0] if found else "regression"


def _because(kind: str, words: list[str], request: Any) -> str:
    found = [flag(name) for name in _MARKS.get(kind, ()) if name in words]
    found = found if request is None else [str(request)]
    return f"this is an audit of `noisewise {_COMMANDS[kind]}`" + (
        f" because of {found[0]}" if found else ""
    )


def _remedy(name: str) -> str:
    """Which options would make this one known."""
    from noisewise.holder.requests.file import KEYS

    takers = [kind for kind in _MARKS if name in KEYS[kind] and name not in _MARKS[kind]]
    return "".join(
        f"; for `noisewise {_COMMANDS[kind]}` add {' or '.join(map(flag, _MARKS[kind]))}"
        for kind in takers
    )


# --- what was found, in words and as JSON ---------------------------------------------------------

_REPORT = "Do not publish; report this as a bug."


def _document_of(found: ReleaseAudit, caught: dict[float, float]) -> dict[str, Any]:
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


def _words_of(found: ReleaseAudit, caught: dict[float, float]) -> list[str]:
    """Everything in words, a line each."""
    schema, result = found.request.schema, found.result
    unit = "one row" if schema.unit.endswith("/1") else "one person's rows"
    change = "replaced" if schema.neighbours == "replace_one" else "added or removed"
    lines = [
        f"Tested: {2 * result.held_out:,} Releases of two synthetic data sets, made from the "
        f"schema alone, that differ by {100 * found.pair.attained:.0f}% of the stated "
        "sensitivity. Your data and ledger were not opened.",
        _worth(found.noise, caught),
        *_stand_in(found.request),
        f"Claim: {found.request.claim}, for {unit} {change}; {_mechanism(found.request)}.",
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
    lines.append(_UNSEEN if found.noise is None else str(found.noise))
    lines += _violations(found)
    if found.passed:
        odds = math.exp(min(result.epsilon, 50.0))
        lines.append(
            f"Meaning: no violation found. Whoever sees the Release may change the odds on {unit} "
            f"by a factor of {odds:.3g} at most, if the claim holds, and the best attack tried "
            f"here reached {math.exp(found.epsilon_shown):.3g}. This is evidence, not proof; the "
            "proofs are beside the mechanisms."
        )
    return lines


def _mechanism(request: Any) -> str:
    from noisewise.holder.requests.draws import RegressionSampleRequest
    from noisewise.holder.requests.network import NetworkRequest
    from noisewise.holder.requests.summary import SummaryRequest

    if isinstance(request, SummaryRequest):
        times = f", {request.partitions} times over" if request.partitions > 1 else ""
        return f"{request.mechanism.name} of {request.blocks:,} blocks{times}"
    if isinstance(request, NetworkRequest):
        kind = "" if request.kind is None else f" ({request.kind})"
        return f"{request.mechanism}{kind} for a network of {len(request.network.nodes)} nodes"
    if isinstance(request, RegressionSampleRequest):
        return f"posterior draws, {request.planned.draws} in all"
    return f"{request.mechanism} noise"


_UNSEEN = (
    "Law: not looked at, because a posterior of so many coefficients cannot be simulated; an audit "
    "of fewer features looks at it."
)


def _stand_in(request: Publishable[Any]) -> list[str]:
    """What ran in place of a model."""
    model = getattr(request, "model", None)
    if model is None or model.is_least_squares:
        return []
    return [
        f"Blocks: they computed what tells most about their rows in place of {model.name}, since "
        "the claim is for whatever they compute. The model itself ran once on each data set."
    ]


def _violations(found: ReleaseAudit) -> list[str]:
    lines, noise, result = [], found.noise, found.result
    if noise is not None and not noise.passed:
        lines.append(
            f"VIOLATED: {noise.flaw} would look like that once in a million audits. {_REPORT}"
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


def _worth(noise: NoiseCheck | DrawCheck | None, caught: dict[float, float]) -> str:
    """Which mistakes would have been noticed."""
    from noisewise.audit.challenge import NoiseCheck

    half, quarter = (f"{100 * caught[factor]:.0f}%" for factor in (0.5, 0.25))
    more = " More --runs see more." if caught[0.5] < 0.95 else ""
    if isinstance(noise, NoiseCheck):
        return (
            f"Worth: noise below {100 * noise.blind_above:.0f}% of the stated scale would have "
            "been noticed. A sensitivity that is half of the true one would have been noticed in "
            f"{half} of cases, one that is a quarter of it in {quarter}.{more}"
        )
    return (
        f"Worth: draws at twice the stated epsilon would have been noticed in {half} of cases, at "
        f"four times in {quarter}; so would a sensitivity that is too small by as much.{more}"
    )
