"""`noisewise audit --all`: every mechanism of noisewise, and broken ones that must be caught."""

from __future__ import annotations

import json

import typer

VIOLATED = 8  # exit code


def audit_all(runs: int | None, confidence: float, as_json: bool) -> None:
    """Print a line for each, and fail if one is not as it should be."""
    from noisewise.lab.audit_registry import examine, subjects

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
