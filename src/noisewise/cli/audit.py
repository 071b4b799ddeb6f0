"""`noisewise audit`: try to find out more than a request claims to give away."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption, names_of

if TYPE_CHECKING:
    from ..holder.request import Request
    from ..lab.audit_release import ReleaseAudit

VIOLATED = 8  # exit code

RunsOption = Annotated[
    int | None,
    typer.Option("--runs", min=40, help="Releases of each data set; more see smaller mistakes."),
]
ConfidenceOption = Annotated[
    float,
    typer.Option("--confidence", help="1 - chance of calling a true claim violated."),
]


def audit(
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema file with public bounds.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="As for `release`.")] = None,
    features: Annotated[str | None, typer.Option("--features", help="As for `release`.")] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", help="The claim.")] = None,
    delta: Annotated[str | None, typer.Option("--delta", help="Of Gaussian noise.")] = None,
    rho: Annotated[str | None, typer.Option("--rho", help="zCDP instead of epsilon.")] = None,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", help="laplace, or gaussian.")
    ] = None,
    radius: Annotated[float | None, typer.Option("--radius", help="As for `release`.")] = None,
    layout: Annotated[str | None, typer.Option("--layout", help="upper or isometric.")] = None,
    fourth_moments: Annotated[
        str | None, typer.Option("--fourth-moments", help="As for `release`.")
    ] = None,
    smallest_eigenvalue: Annotated[
        str | None, typer.Option("--smallest-eigenvalue", help="As for `release`.")
    ] = None,
    runs: RunsOption = None,
    confidence: ConfidenceOption = 0.99,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Audit every mechanism of noisewise, and broken ones."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Audit the path from rows to a Release for your request, before you trust it with data.

    Two synthetic data sets that differ in one person as much as your schema allows are released
    many times, and the noise is tried on: how well can outputs tell them apart? That bounds
    epsilon from below. A bound above the claim is a bug, and the exit code is 8. A bound below it
    is no proof. Neither your data nor your ledger is opened.

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --epsilon 1
    """
    from ..core.errors import RequestError

    if everything:
        _audit_all(runs, confidence, as_json)
        return
    if schema is None or target is None or features is None:
        raise RequestError(
            "schema, target, features: an audit needs all three, as for `noisewise release`; "
            "--all audits noisewise's own mechanisms on invented schemas"
        )
    from .._progress import progress_bar
    from ..core.schema_file import read_schema
    from ..holder.request import make_request
    from ..lab.audit_release import RUNS, audit_release, chance_of_catching

    request = make_request(
        read_schema(schema),
        target=target,
        features=names_of(features),
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mechanism=mechanism,
        radius=radius,
        layout=layout,
        fourth_moments=fourth_moments,
        smallest_eigenvalue=smallest_eigenvalue,
    )
    request.verify()
    size = {"runs": runs or RUNS, "confidence": confidence}
    with progress_bar("releasing", unit="runs", show=sys.stderr.isatty()) as report:
        found = audit_release(request, **size, report=report)  # type: ignore[arg-type]
    caught = {
        factor: chance_of_catching(request, factor, **size)  # type: ignore[arg-type]
        for factor in (0.5, 0.25)
    }
    if as_json:
        typer.echo(json.dumps(_document(found, caught)))
    else:
        for line in _words(request, found, caught):
            typer.echo(line)
    if not found.passed:
        raise typer.Exit(VIOLATED)


def _document(found: ReleaseAudit, caught: dict[float, float]) -> dict[str, Any]:
    result = found.result
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
        "noise": {**asdict(found.noise), "passed": found.noise.passed},
        "chance_of_catching": {str(factor): chance for factor, chance in caught.items()},
    }


def _words(request: Request, found: ReleaseAudit, caught: dict[float, float]) -> list[str]:
    result, percent = found.result, f"{100 * found.result.confidence:g}%"
    unit = "one row" if request.schema.max_rows_per_unit == 1 else "one person's rows"
    change = "replaced" if request.schema.neighbours == "replace_one" else "added or removed"
    lines = [
        f"Claim: {request.claim}, for {unit} {change}; {request.mechanism} noise.",
        f"Tried: two synthetic data sets that differ by {100 * found.pair.attained:.0f}% of the "
        "stated sensitivity, made from the schema alone. Your data and ledger were not opened.",
        f"Found: epsilon is at least {found.epsilon_shown:.3f} with {percent} confidence"
        + (f" (at delta = {result.delta:g})" if result.delta else "")
        + ".",
        f"  {result.likelier:,} of {result.held_out:,} Releases of one data set fell into a region "
        f"chosen beforehand, {result.rarer:,} of {result.held_out:,} of the other.",
    ]
    if result.mu is not None:
        lines.append(
            f"  As Gaussian noise: the two are at least {result.mu_lower:.3f} standard deviations "
            f"apart, where the claim allows {result.mu:.3f}."
        )
    noise = found.noise
    lines.append(
        f"Noise: {100 * noise.smallest:.0f}% to {100 * noise.largest:.0f}% of the stated scale "
        f"over all published values; the largest correlation of two is {noise.correlation:.2f}."
    )
    if not noise.passed:
        what = "less noise than stated" if not noise.enough else "noise that values share"
        lines.append(
            f"VIOLATED: there is {what}. Sound noise would look like that once in a million "
            "audits. Do not publish; report this as a bug."
        )
    if not found.only_values_differ:
        lines.append(
            "VIOLATED: the two published files differ in more than their noisy values, so "
            "something beside them depends on the rows. Do not publish; report this as a bug."
        )
    if not result.passed:
        lines.append(
            "VIOLATED: that is more than claimed. A true claim would be called violated with "
            f"probability {1 - result.confidence:.2g} at most. Do not publish; report this as a "
            "bug."
        )
    if found.passed:
        odds = math.exp(min(result.epsilon, 50.0))
        lines.append(
            f"Meaning: no violation found. Whoever sees the Release may change the odds on {unit} "
            f"by a factor of {odds:.3g} at most, if the claim holds, and the best attack tried "
            f"here reached {math.exp(found.epsilon_shown):.3g}. This is evidence, not proof; the "
            "proofs are beside the mechanisms."
        )
    half, quarter = caught[0.5], caught[0.25]
    lines.append(
        f"Sight: noise below {100 * noise.blind_above:.0f}% of the stated scale would have been "
        "noticed. By telling people apart alone, half of the noise is noticed in "
        f"{100 * half:.0f}% of cases and a quarter of it in {100 * quarter:.0f}%, which is what "
        "counts for a sensitivity that is too small."
        + (" More --runs see more." if half < 0.95 else "")
    )
    return lines


def _audit_all(runs: int | None, confidence: float, as_json: bool) -> None:
    from ..lab.audit_registry import examine, subjects

    wrong, documents = [], []
    if not as_json:
        typer.echo(f"{'':24} {'claimed':>8} {'at least':>9} {'runs':>7}  verdict")
    for subject in subjects().values():
        verdict = examine(subject, runs=runs, confidence=confidence)
        result = verdict.result
        if not verdict.as_it_should_be:
            wrong.append(subject.name)
        # Gaussian noise is judged by standard deviations.
        claimed, least, what = (
            (result.epsilon, result.epsilon_lower, "epsilon")
            if result.mu is None
            else (result.mu, result.mu_lower, "mu")
        )
        documents.append(
            {
                "name": subject.name,
                "sound": subject.sound,
                "passed": result.passed,
                "what": what,
                "claimed": claimed,
                "lower": least,
                "runs": runs or subject.runs,
            }
        )
        if not as_json:
            kept = "claim kept" if result.passed else "claim violated"
            note = "" if subject.sound else " (broken on purpose)"
            alarm = "" if verdict.as_it_should_be else "  <-- NOT AS IT SHOULD BE"
            typer.echo(
                f"{subject.name:24} {claimed:8.3f} {least:9.3f} {runs or subject.runs:7,}  "
                f"{what}: {kept}{note}{alarm}"
            )
    if as_json:
        typer.echo(json.dumps(documents))
    elif not wrong:
        typer.echo("Every sound mechanism kept its claim, and every broken one was caught.")
    if wrong:
        raise typer.Exit(VIOLATED)
