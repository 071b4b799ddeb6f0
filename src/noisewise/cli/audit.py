"""`noisewise audit`: try to find out more than a request claims to give away."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from noisewise.cli import audit_options as options
from noisewise.cli.options import JsonOption

if TYPE_CHECKING:
    from noisewise.holder.publishable import Publishable

VIOLATED = 8  # exit code


def audit(
    schema: options.AuditSchema = None,
    target: options.AuditTarget = None,
    features: options.AuditFeatures = None,
    epsilon: options.AuditEpsilon = None,
    delta: options.AuditDelta = None,
    rho: options.AuditRho = None,
    mechanism: options.AuditMechanism = None,
    radius: options.AuditRadius = None,
    layout: options.AuditLayout = None,
    fourth_moments: options.AuditFourthMoments = None,
    smallest_eigenvalue: options.AuditSmallestEigenvalue = None,
    ask: options.AuditAsk = None,
    coefficients: options.AuditCoefficients = None,
    quantiles: options.AuditQuantiles = None,
    bounds: options.AuditBounds = None,
    base: options.AuditBase = None,
    rows: options.AuditRows = None,
    blocks: options.AuditBlocks = None,
    partitions: options.AuditPartitions = None,
    posterior: options.AuditPosterior = None,
    g: options.AuditG = None,
    clip: options.AuditClip = None,
    p_star: options.AuditPStar = None,
    graph: options.AuditGraph = None,
    edges: options.AuditEdges = None,
    naive_bayes: options.AuditNaiveBayes = None,
    kind: options.AuditKind = None,
    draws: options.AuditDraws = None,
    omega: options.AuditOmega = None,
    temper: options.AuditTemper = None,
    points: options.AuditPoints = None,
    concentration: options.AuditConcentration = None,
    noise_sd: options.AuditNoiseSd = None,
    largest_norm: options.AuditLargestNorm = None,
    prior_precision: options.AuditPriorPrecision = None,
    runs: options.RunsOption = None,
    confidence: options.ConfidenceOption = 0.99,
    as_json: JsonOption = False,
) -> None:
    """Audit the path from rows to a Release for your request, before you trust it with data.

    Two synthetic data sets that differ in one person as much as your schema allows are released
    many times, and the noise is tried on: how well can outputs tell them apart? That bounds
    epsilon from below. A bound above the claim is a bug, and the exit code is 8. A bound below it
    is no proof. Neither your data nor your ledger is opened.

    Give the words that you would give to `release`, `release-summary`, `release-network` or
    `sample-regression`; which of them it is follows from the options.

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --epsilon 1

    Example: noisewise audit --schema schema.yaml --target income --features age,hours
    --ask "hours < 0" --rows 20000 --epsilon 1

    Example: noisewise audit --schema schema.yaml --naive-bayes disease --epsilon 1

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --noise-sd 20000 --epsilon 1
    """
    from noisewise.cli.audit_request import audited_request

    request = audited_request(
        schema,
        target=target,
        features=features,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mechanism=mechanism,
        radius=radius,
        layout=layout,
        fourth_moments=fourth_moments,
        smallest_eigenvalue=smallest_eigenvalue,
        ask=ask,
        coefficients=coefficients,
        quantiles=quantiles,
        bounds=bounds,
        base=base,
        rows=rows,
        blocks=blocks,
        partitions=partitions,
        posterior=posterior,
        g=g,
        clip=clip,
        p_star=p_star,
        graph=graph,
        edges=edges,
        naive_bayes=naive_bayes,
        kind=kind,
        draws=draws,
        omega=omega,
        temper=temper,
        points=points,
        concentration=concentration,
        noise_sd=noise_sd,
        largest_norm=largest_norm,
        prior_precision=prior_precision,
    )
    _audit_one(request, runs, confidence, as_json)


def _audit_one(
    request: Publishable[Any], runs: int | None, confidence: float, as_json: bool
) -> None:
    from noisewise._progress import progress_bar
    from noisewise.audit.request import RUNS, audit_release, challenge_of, chance_of_catching
    from noisewise.cli.audit_findings import document_of, words_of

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
        typer.echo(json.dumps(document_of(found, caught)))
    else:
        for line in words_of(found, caught):
            typer.echo(line)
    if not found.passed:
        raise typer.Exit(VIOLATED)
