"""The options of `noisewise audit`: those of the publishing commands that describe a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_PANELS = {
    "release-summary": "Block summaries",
    "release-network": "Networks",
    "sample-regression": "Draws of coefficients",
}


def _as_for(command: str, name: str) -> Any:
    """An option that a publishing command explains."""
    panel = _PANELS.get(command)
    return typer.Option(name, help=f"As for `{command}`.", rich_help_panel=panel)


# --- every kind, or several -----------------------------------------------------------------------

AuditSchema = Annotated[
    Path | None, typer.Option("--schema", help="Schema file with public bounds.")
]
AuditTarget = Annotated[str | None, _as_for("release", "--target")]
AuditFeatures = Annotated[str | None, _as_for("release", "--features")]
AuditEpsilon = Annotated[str | None, typer.Option("--epsilon", help="The claim.")]
AuditMechanism = Annotated[
    str | None,
    typer.Option("--mechanism", help="laplace, or gaussian; or one of the command's own."),
]
AuditRadius = Annotated[float | None, _as_for("release", "--radius")]
RunsOption = Annotated[
    int | None,
    typer.Option("--runs", min=40, help="Releases of each data set; more see smaller mistakes."),
]
ConfidenceOption = Annotated[
    float,
    typer.Option("--confidence", help="1 - chance of calling a true claim violated."),
]

# --- release --------------------------------------------------------------------------------------

AuditDelta = Annotated[str | None, typer.Option("--delta", help="Of Gaussian noise.")]
AuditRho = Annotated[str | None, typer.Option("--rho", help="zCDP instead of epsilon.")]
AuditLayout = Annotated[str | None, typer.Option("--layout", help="upper or isometric.")]
AuditFourthMoments = Annotated[str | None, _as_for("release", "--fourth-moments")]
AuditSmallestEigenvalue = Annotated[str | None, _as_for("release", "--smallest-eigenvalue")]

# --- release-summary ------------------------------------------------------------------------------

AuditAsk = Annotated[list[str] | None, _as_for("release-summary", "--ask")]
AuditCoefficients = Annotated[str | None, _as_for("release-summary", "--coefficients")]
AuditQuantiles = Annotated[str | None, _as_for("release-summary", "--quantiles")]
AuditBounds = Annotated[list[str] | None, _as_for("release-summary", "--bounds")]
AuditBase = Annotated[list[str] | None, _as_for("release-summary", "--base")]
AuditRows = Annotated[int | None, _as_for("release-summary", "--rows")]
AuditBlocks = Annotated[int | None, _as_for("release-summary", "--blocks")]
AuditPartitions = Annotated[int | None, _as_for("release-summary", "--partitions")]
AuditPosterior = Annotated[str | None, _as_for("release-summary", "--posterior")]
AuditG = Annotated[float | None, _as_for("release-summary", "--g")]
AuditClip = Annotated[float | None, _as_for("release-summary", "--clip")]
AuditPStar = Annotated[float | None, _as_for("release-summary", "--p-star")]

# --- release-network ------------------------------------------------------------------------------

AuditGraph = Annotated[Path | None, _as_for("release-network", "--graph")]
AuditEdges = Annotated[str | None, _as_for("release-network", "--edges")]
AuditNaiveBayes = Annotated[str | None, _as_for("release-network", "--naive-bayes")]
AuditKind = Annotated[str | None, _as_for("release-network", "--kind")]
AuditDraws = Annotated[int | None, _as_for("release-network", "--draws")]
AuditOmega = Annotated[str | None, _as_for("release-network", "--omega")]
AuditTemper = Annotated[str | None, _as_for("release-network", "--temper")]
AuditPoints = Annotated[int | None, _as_for("release-network", "--points")]
AuditConcentration = Annotated[str | None, _as_for("release-network", "--concentration")]

# --- sample-regression ----------------------------------------------------------------------------

AuditNoiseSd = Annotated[str | None, _as_for("sample-regression", "--noise-sd")]
AuditLargestNorm = Annotated[str | None, _as_for("sample-regression", "--largest-norm")]
AuditPriorPrecision = Annotated[str | None, _as_for("sample-regression", "--prior-precision")]
