"""From Releases of any kind to what they say: the analyst's one door."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from noisewise.core.errors import RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.draws import RegressionSampleRelease
from noisewise.core.kinds.glm import GlmRelease
from noisewise.core.kinds.network.release import NetworkRelease
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.summary.release import SummaryRelease

if TYPE_CHECKING:
    from noisewise.analyst.network.prior import Prior as NetworkPrior
    from noisewise.analyst.posterior.draws import DrawsPosterior
    from noisewise.analyst.posterior.glm import GlmPosterior
    from noisewise.analyst.posterior.network import NetworkPosterior
    from noisewise.analyst.posterior.regression import Posterior
    from noisewise.analyst.posterior.summary import SummaryPosterior
    from noisewise.analyst.regression.original_units import CoefficientPrior
    from noisewise.analyst.regression.papers.moments import CovariateMoments
    from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior
    from noisewise.analyst.regression.records import Covariates
    from noisewise.analyst.trust import Trust

_KINDS: dict[type[Any], str] = {
    Release: "statistics of a regression",
    NetworkRelease: "networks",
    GlmRelease: "scores of a logistic or Poisson regression",
    SummaryRelease: "block summaries",
    RegressionSampleRelease: "posterior draws",
}
_ALONE: dict[type[Any], str] = {
    SummaryRelease: "a block summary",
    RegressionSampleRelease: "a Release of posterior draws",
}


@overload
def fit(
    releases: Release | Sequence[Release],
    formula: str | None = None,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    prior: RegressionPrior | CoefficientPrior | str | Path | None = None,
    covariate_prior: CovariatePrior | CovariateMoments | Covariates | None = None,
    clip: bool = False,
    prior_units: Literal["unit", "original"] = "unit",
    method: str = "auto",
    varying: bool = False,
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    names: Sequence[str] | None = None,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
) -> Posterior: ...
@overload
def fit(
    releases: NetworkRelease | Sequence[NetworkRelease],
    *,
    prior: NetworkPrior | str | Path | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
) -> NetworkPosterior: ...
@overload
def fit(
    releases: GlmRelease | Sequence[GlmRelease],
    *,
    prior: CoefficientPrior | str | Path | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    names: Sequence[str] | None = None,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
) -> GlmPosterior: ...
@overload
def fit(
    releases: SummaryRelease,
    *,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
) -> SummaryPosterior: ...
@overload
def fit(
    releases: RegressionSampleRelease,
    *,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
) -> DrawsPosterior: ...
@overload
def fit(releases: Any, formula: str | None = None, **options: Any) -> Any: ...


def fit(
    releases: Any,
    formula: str | None = None,
    *,
    progress: bool = False,
    names: Sequence[str] | None = None,
    trust: Trust | str | Path | Sequence[str | Path] | None = None,
    skip_unusable: bool = False,
    **options: Any,
) -> Any:
    """What one or several Releases say, with the privacy noise accounted for.

    Parameters
    ----------
    releases : Release, path, or sequence of either
        A path names a file that a holder published. What kind they are decides what is done:

        - statistics of a regression (`Release`), from one holder or many: `fit_regression`;
        - scores of a logistic or Poisson regression (`GlmRelease`), from one holder or many:
          `noisewise.analyst.glm.fit.fit_glm`;
        - networks (`NetworkRelease`), from one holder or many: `fit_network`;
        - a block summary (`SummaryRelease`), by itself: its answers, without options;
        - draws of a regression (`RegressionSampleRelease`), by itself: the draws in original units.
    formula : str, optional
        A regression among what was released, such as ``"visits ~ age + I(age**2)"``.
    progress : bool
        Show progress on the terminal, where there is anything to wait for.
    names : sequence of str, optional
        What to call the Releases in messages; by default the names of the files.
    trust : path or paths, or Trust, optional
        Files of public keys, or folders of them (`noisewise.analyst.trust`). Only Releases that
        these keys have signed are then fitted; if one is not, nothing is.
    skip_unusable : bool
        Fit the Releases of a linear regression that go together, and leave out those that don't:
        with other bounds or columns, or impossible statistics. The posterior and its report say
        which and why. Otherwise the first of them stops the fit.
    **options
        Of `noisewise.analyst.regression.fit.fit_regression` (target, features, prior,
        covariate_prior, clip, prior_units, method, varying, chains, draws, seed) or of
        `noisewise.analyst.network.fit.fit_network` (prior, method, chains, draws, seed). None says
        nothing. A prior may be the path of a YAML file.

    Returns
    -------
    Posterior, GlmPosterior, NetworkPosterior, SummaryPosterior or DrawsPosterior
        All have `summary`, `prob`, `warnings`, `plot`, `report` and `save`; see
        `noisewise.analyst.posterior.base.BasePosterior`.
    """
    one = isinstance(releases, str | Path) or not isinstance(releases, Sequence)
    listed = [releases] if one else list(releases)
    given: list[Any] = [load_release(x) if isinstance(x, str | Path) else x for x in listed]
    if names is None and given and all(isinstance(x, str | Path) for x in listed):
        names = file_names([Path(x) for x in listed])
    if trust is not None:
        from noisewise.analyst.trust import read_trust, trusted

        called = names or [f"Release {number}" for number in range(1, len(given) + 1)]
        given = trusted(given, called, read_trust(trust))
    options = {k: v for k, v in {"formula": formula, **options}.items() if v is not None}
    kinds = {type(item): None for item in given if type(item) in _KINDS}
    if len(kinds) > 1:
        raise RequestError(
            f"releases: {' and '.join(_KINDS[kind] for kind in kinds)} do not go together; fit "
            "each kind by itself"
        )
    [kind] = kinds or [Release]
    if kind in _ALONE:
        if len(given) > 1:
            raise RequestError(
                f"releases: {_ALONE[kind]} is read by itself; fit it alone, and the others without "
                "it"
            )
        why = "is read as it was released (regression and prior were chosen by the holder)"
        _check_options(options, _read_as_released, f"{_ALONE[kind]} {why}")
        return _read_as_released(given[0])
    if kind is NetworkRelease:
        from noisewise.analyst.network.fit import fit_network
        from noisewise.analyst.network.prior import read_concentrations

        why = "a network is fitted as a whole, and `predict` takes any node for the target"
        _check_options(options, fit_network, why)
        if isinstance(options.get("prior"), str | Path):
            options["prior"] = read_concentrations(Path(options["prior"]))
        return fit_network(given, progress=progress, **options)
    if isinstance(options.get("prior"), str | Path):
        from noisewise.analyst.regression.original_units import read_prior

        options["prior"] = read_prior(Path(options["prior"]))
    if kind is GlmRelease:
        from noisewise.analyst.glm.fit import fit_glm

        _check_options(options, fit_glm, "scores are of one regression, with one method")
        return fit_glm(given, progress=progress, names=names, **options)
    from noisewise.analyst.regression.fit import fit_regression

    _check_options(options, fit_regression, "a regression has no such option")
    if skip_unusable and len(given) > 1:
        from noisewise.analyst.regression.fit import fit_usable

        return fit_usable(given, progress=progress, names=names, **options)
    return fit_regression(given[0] if one else given, progress=progress, names=names, **options)


def file_names(paths: Sequence[Path]) -> list[str]:
    """What to call files: their names, and where those are not enough, their paths."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _read_as_released(release: SummaryRelease | RegressionSampleRelease) -> Any:
    if isinstance(release, SummaryRelease):
        from noisewise.analyst.posterior.summary import SummaryPosterior

        return SummaryPosterior(release)
    from noisewise.analyst.posterior.draws import DrawsPosterior

    return DrawsPosterior(release)


def _check_options(options: dict[str, Any], function: Any, why: str) -> None:
    """Refuse options that this kind of Release does not have."""
    for name in options:
        if name not in list(inspect.signature(function).parameters)[1:]:
            raise RequestError(f"{name}: {why}; leave {name} out")
