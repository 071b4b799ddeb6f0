"""From Releases of any kind to what they say: the analyst's one door."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from noisewise.core.errors import RequestError
from noisewise.core.network_regression import RegressionSampleRelease
from noisewise.core.network_release import NetworkRelease
from noisewise.core.release import Release
from noisewise.core.summary_release import SummaryRelease

if TYPE_CHECKING:
    from noisewise.analyst.networks.posterior import NetworkPosterior
    from noisewise.analyst.networks.prior import Prior as NetworkPrior
    from noisewise.analyst.posterior import Posterior
    from noisewise.analyst.regression.original_units import CoefficientPrior
    from noisewise.analyst.regression.papers.moments import CovariateMoments
    from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior
    from noisewise.analyst.regression.records import Covariates
    from noisewise.analyst.sampled_regression import SampledRegression
    from noisewise.analyst.summaries.posterior import SummaryPosterior

_KINDS: dict[type[Any], str] = {
    Release: "statistics of a regression",
    NetworkRelease: "networks",
    SummaryRelease: "block summaries",
    RegressionSampleRelease: "posterior draws",
}


@overload
def fit(
    releases: Release | Sequence[Release],
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    prior: RegressionPrior | CoefficientPrior | None = None,
    covariate_prior: CovariatePrior | CovariateMoments | Covariates | None = None,
    clip: bool = False,
    prior_units: Literal["unit", "original"] = "unit",
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
    names: Sequence[str] | None = None,
) -> Posterior: ...
@overload
def fit(
    releases: NetworkRelease | Sequence[NetworkRelease],
    *,
    prior: NetworkPrior | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
) -> NetworkPosterior: ...
@overload
def fit(releases: SummaryRelease) -> SummaryPosterior: ...
@overload
def fit(releases: RegressionSampleRelease) -> SampledRegression: ...


def fit(releases: Any, **options: Any) -> Any:
    """What one or several Releases say, with the privacy noise accounted for.

    Parameters
    ----------
    releases : Release or sequence of Release
        What kind they are decides what is done:

        - statistics of a regression (`Release`), from one holder or many: `fit_regression`;
        - networks (`NetworkRelease`), from one holder or many: `fit_network`;
        - a block summary (`SummaryRelease`), by itself: its answers, without options;
        - draws of a regression (`RegressionSampleRelease`), by itself: the draws in original units.
    **options
        Of `noisewise.analyst.regression.fit.fit_regression` (target, features, prior,
        covariate_prior, clip, prior_units, method, chains, draws, seed, progress, names) or of
        `noisewise.analyst.networks.fit.fit_network` (prior, method, chains, draws, seed,
        progress).

    Returns
    -------
    Posterior, NetworkPosterior, SummaryPosterior or SampledRegression
    """
    given = list(releases) if isinstance(releases, Sequence) else [releases]
    kinds = {type(item): None for item in given if type(item) in _KINDS}
    if len(kinds) > 1:
        raise RequestError(
            f"releases: {' and '.join(_KINDS[kind] for kind in kinds)} do not go together; fit "
            "each kind by itself"
        )
    if any(isinstance(item, NetworkRelease) for item in given):
        from noisewise.analyst.networks.fit import fit_network

        _check_options(
            options,
            _options_of(fit_network),
            "a network is fitted as a whole, and `predict` takes any node for the target",
        )
        return fit_network(releases, **options)
    for kind, what in (
        (SummaryRelease, "a block summary"),
        (RegressionSampleRelease, "a Release of posterior draws"),
    ):
        if not any(isinstance(item, kind) for item in given):
            continue
        if len(given) > 1:
            raise RequestError(
                f"releases: {what} is read by itself; fit it alone, and the others without it"
            )
        _check_options(
            options,
            (),
            f"{what} is read as it was released (the regression and its prior were chosen by the "
            "holder)",
        )
        return _read(given[0])
    from noisewise.analyst.regression.fit import fit_regression

    _check_options(options, _options_of(fit_regression), "a regression has no such option")
    return fit_regression(releases, **options)


def _read(release: SummaryRelease | RegressionSampleRelease) -> Any:
    if isinstance(release, SummaryRelease):
        from noisewise.analyst.summaries.posterior import SummaryPosterior

        return SummaryPosterior(release)
    from noisewise.analyst.sampled_regression import SampledRegression

    return SampledRegression(release)


def _options_of(function: Any) -> tuple[str, ...]:
    import inspect

    return tuple(inspect.signature(function).parameters)[1:]


def _check_options(options: dict[str, Any], allowed: tuple[str, ...], why: str) -> None:
    """Refuse options that this kind of Release does not have; None says nothing, so it may stay."""
    for name in [name for name in options if name not in allowed]:
        if options.pop(name) is not None:
            raise RequestError(f"{name}: {why}; leave {name} out")
