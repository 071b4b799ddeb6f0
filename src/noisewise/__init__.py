"""noisewise: differentially private Bayesian inference with honest uncertainty.

The holder of sensitive rows publishes a Release; the analyst turns Releases into a posterior that
accounts for the noise. Names are loaded on first use, so importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from noisewise._version import __version__ as __version__

if TYPE_CHECKING:
    from noisewise.analyst.fit import fit as fit
    from noisewise.analyst.pool import pool as pool
    from noisewise.analyst.posterior.base import compare as compare
    from noisewise.analyst.posterior.draws import DrawsPosterior as DrawsPosterior
    from noisewise.analyst.posterior.file import load_posterior as load_posterior
    from noisewise.analyst.posterior.glm import GlmPosterior as GlmPosterior
    from noisewise.analyst.posterior.network import NetworkPosterior as NetworkPosterior
    from noisewise.analyst.posterior.regression import Posterior as Posterior
    from noisewise.analyst.posterior.summary import SummaryPosterior as SummaryPosterior
    from noisewise.core.errors import NoisewiseError as NoisewiseError
    from noisewise.core.kinds import load_release as load_release
    from noisewise.core.kinds.glm import GlmRelease as GlmRelease
    from noisewise.core.kinds.network.graph import Network as Network
    from noisewise.core.kinds.network.release import NetworkRelease as NetworkRelease
    from noisewise.core.kinds.regression import Release as Release
    from noisewise.core.kinds.summary.release import SummaryRelease as SummaryRelease
    from noisewise.core.schema import Category as Category
    from noisewise.core.schema import Number as Number
    from noisewise.core.schema import Schema as Schema
    from noisewise.core.schema import Unbounded as Unbounded
    from noisewise.core.schema import Words as Words
    from noisewise.core.yaml_files import read_schema as read_schema
    from noisewise.core.yaml_files import write_schema as write_schema
    from noisewise.holder.keys import SigningKey as SigningKey
    from noisewise.holder.keys import new_key as new_key
    from noisewise.holder.keys import read_key as read_key
    from noisewise.holder.ledger import Ledger as Ledger
    from noisewise.holder.publish import publish as publish
    from noisewise.holder.reach import within_reach as within_reach
    from noisewise.holder.requests.file import read_request as read_request
    from noisewise.holder.requests.file import write_request as write_request
    from noisewise.holder.requests.glm import GlmRequest as GlmRequest
    from noisewise.holder.requests.glm import make_glm_request as make_glm_request
    from noisewise.holder.requests.regression import Request as Request
    from noisewise.holder.requests.regression import make_request as make_request
    from noisewise.holder.requests.summary import BlockFunction as BlockFunction
    from noisewise.holder.requests.summary import SummaryRequest as SummaryRequest
    from noisewise.holder.requests.summary import make_summary_request as make_summary_request
    from noisewise.planning.plan import plan as plan

_NAMES = {
    "analyst.fit": ("fit",),
    "analyst.pool": ("pool",),
    "analyst.posterior.base": ("compare",),
    "analyst.posterior.draws": ("DrawsPosterior",),
    "analyst.posterior.file": ("load_posterior",),
    "analyst.posterior.glm": ("GlmPosterior",),
    "analyst.posterior.network": ("NetworkPosterior",),
    "analyst.posterior.regression": ("Posterior",),
    "analyst.posterior.summary": ("SummaryPosterior",),
    "analyst.regression.original_units": ("CoefficientPrior",),
    "analyst.regression.papers.ada_ssp": ("ada_ssp",),
    "core.errors": ("NoisewiseError",),
    "core.kinds": ("load_release",),
    "core.kinds.glm": ("GlmRelease",),
    "core.kinds.network.graph": ("Network",),
    "core.kinds.network.release": ("NetworkRelease",),
    "core.kinds.regression": ("Release",),
    "core.kinds.summary.release": ("SummaryRelease",),
    "core.schema": ("Category", "Number", "Schema", "Unbounded", "Words"),
    "core.yaml_files": ("read_schema", "write_schema"),
    "holder.keys": ("SigningKey", "new_key", "read_key"),
    "holder.ledger": ("Ledger",),
    "holder.publish": ("publish",),
    "holder.reach": ("within_reach",),
    "holder.requests.file": ("read_request", "write_request"),
    "holder.requests.glm": ("GlmRequest", "make_glm_request"),
    "holder.requests.network": ("NetworkRequest", "make_network_request"),
    "holder.requests.regression": ("Request", "make_request"),
    "holder.requests.summary": ("BlockFunction", "SummaryRequest", "make_summary_request"),
    "planning.plan": ("plan",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'noisewise' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
