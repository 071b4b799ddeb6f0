"""What fit, show and predict do with networks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from noisewise.analyst.posterior.network import NetworkPosterior
    from noisewise.core.releases import AnyRelease

MOST_ROWS = 60  # table entries that are shown on the screen


def fit_networks(
    releases: list[AnyRelease],
    method: str,
    prior: Path | None,
    chains: int,
    draws: int,
    seed: int | None,
    out: Path,
) -> None:
    """Posterior of the conditional tables, written to a file."""
    from noisewise.analyst.network.fit import fit_network
    from noisewise.analyst.posterior.file import check_folder

    check_folder(out)
    posterior = fit_network(
        releases,  # type: ignore[arg-type]  # it refuses other kinds
        prior=None if prior is None else read_concentrations(prior),
        method=method,
        chains=chains,
        draws=draws,
        seed=seed,
        progress=sys.stderr.isatty(),
    )
    posterior.save(out)
    say(posterior)
    typer.echo(f"Wrote {out}.")


def read_concentrations(path: Path) -> Any:
    """A prior file: ``concentration: 0.5``, or a number (or nested lists) for every node."""
    import yaml

    from noisewise.core.errors import RequestError

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"prior: cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise RequestError(f"prior: {path} is not YAML in UTF-8") from None
    if not isinstance(document, dict) or set(document) != {"concentration"}:
        raise RequestError(
            f"prior: of a network, {path} must have one line such as 'concentration: 0.5' or "
            "'concentration: {cough: 1, smoker: 0.5}'"
        )
    return document["concentration"]


def is_network(path: Path) -> bool:
    """Whether a posterior file is of a network."""
    from noisewise.analyst.posterior.network_file import is_network_posterior

    return path.suffix != ".json" and path.is_file() and is_network_posterior(path)


def show_network(path: Path, level: float, as_json: bool) -> bool:
    """Show a network posterior, if the file is one."""
    if not is_network(path):
        return False
    from noisewise.analyst.posterior.network_file import load_network_posterior

    posterior = load_network_posterior(path)
    if as_json:
        typer.echo(json.dumps(_document(posterior, level), indent=1, allow_nan=False))
    else:
        say(posterior, level)
    return True


def say(posterior: NetworkPosterior, level: float = 0.95) -> None:
    """The tables with their uncertainty, on the screen."""
    info = posterior.info
    edges = ", ".join(f"{a}>{b}" for a, b in posterior.network.edges[:12])
    more = " ..." if len(posterior.network.edges) > 12 else ""
    typer.echo(f"Network of {len(posterior.nodes)} nodes: {edges}{more}")
    typer.echo(f"Method {info.method} ({info.algorithm}): {info.reason}")
    for n, claim, mechanism in zip(info.n, info.claims, info.mechanisms, strict=True):
        rows = "a private number of" if n is None else f"{n:,}"
        typer.echo(f"Release of {rows} rows by {mechanism} at {claim}.")
    shown: list[str] = []
    cells = 0
    for node in posterior.nodes:
        cells += posterior.network.cells(node)
        if cells > MOST_ROWS and shown:
            break
        shown.append(node)
    typer.echo(str(posterior.summary(shown, level)))
    if len(shown) < len(posterior.nodes):
        left = len(posterior.nodes) - len(shown)
        typer.echo(f"... and {left} more nodes; --json shows all of them.")
    for warning in info.warnings:
        typer.echo(f"Warning: {warning}", err=True)


def classify_rows(
    path: Path, target: str | None, table: dict[str, list[Any]], level: float
) -> list[list[Any]]:
    """Lines of a CSV file: the most likely level, and every level's probability and interval."""
    from noisewise.analyst.posterior.network_file import load_network_posterior
    from noisewise.core.errors import RequestError

    posterior = load_network_posterior(path)
    if target is None:
        raise RequestError(
            f"target: name the node to classify, one of {', '.join(posterior.nodes[:20])}"
        )
    found = posterior.predict(target, table, level)
    head = [target]
    for name in found.levels:
        head += [f"p({name})", f"lower({name})", f"upper({name})"]
    lines: list[list[Any]] = [head]
    for row, best in enumerate(found.most_likely):
        line = [str(best)]
        for k in range(len(found.levels)):
            numbers = (found.probability[row, k], found.lower[row, k], found.upper[row, k])
            line += [f"{value:.6g}" for value in numbers]
        lines.append(line)
    return lines


def plot_network(paths: list[Path], out: Path, names: str | None, level: float) -> bool:
    """Draw the tables of a network posterior, if that is what was given, alone."""
    if len(paths) != 1 or not is_network(paths[0]):
        return False
    from noisewise.analyst.network.plots import plot_tables
    from noisewise.analyst.posterior.file import check_folder
    from noisewise.analyst.posterior.network_file import load_network_posterior
    from noisewise.cli.options import names_of
    from noisewise.core.errors import RequestError

    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise RequestError(f"out: {out} must end in .png, .svg or .pdf")
    check_folder(out)
    posterior = load_network_posterior(paths[0])
    plot_tables(posterior, out, nodes=None if names is None else names_of(names), level=level)
    typer.echo(f"Wrote {out}.")
    return True


def _document(posterior: NetworkPosterior, level: float) -> dict[str, Any]:
    info = posterior.info
    tables = {}
    for node in posterior.nodes:
        table = posterior.table(node, level)
        tables[node] = {
            "parents": list(posterior.network.parents[node]),
            "levels": list(posterior.network.levels(node)),
            "mean": table.mean.tolist(),
            "sd": table.sd.tolist(),
            "lower": table.lower.tolist(),
            "upper": table.upper.tolist(),
        }
    return {
        "tables": tables,
        "level": level,
        "method": info.method,
        "algorithm": info.algorithm,
        "noise_aware": info.noise_aware,
        "mechanisms": list(info.mechanisms),
        "n": list(info.n),
        "claims": list(info.claims),
        "warnings": list(info.warnings),
    }
