"""noisewise: differentially private Bayesian inference with honest uncertainty.

The holder of sensitive rows publishes a Release; the analyst turns Releases into a posterior that
accounts for the noise. Names are loaded on first use, so importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from noisewise._version import __version__

if TYPE_CHECKING:
    from noisewise.analyst.fit import fit
    from noisewise.analyst.pool import pool
    from noisewise.analyst.posterior.base import compare
    from noisewise.analyst.posterior.draws import DrawsPosterior
    from noisewise.analyst.posterior.file import load_posterior
    from noisewise.analyst.posterior.glm import GlmPosterior
    from noisewise.analyst.posterior.network import NetworkPosterior
    from noisewise.analyst.posterior.regression import Posterior
    from noisewise.analyst.posterior.summary import SummaryPosterior
    from noisewise.core.errors import NoisewiseError
    from noisewise.core.kinds import load_release
    from noisewise.core.kinds.glm import GlmRelease
    from noisewise.core.kinds.network.graph import Network
    from noisewise.core.kinds.network.release import NetworkRelease
    from noisewise.core.kinds.regression import Release
    from noisewise.core.kinds.summary.release import SummaryRelease
    from noisewise.core.schema import Category, Number, Schema, Unbounded, Words
    from noisewise.core.yaml_files import read_schema, write_schema
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import publish
    from noisewise.holder.requests.file import read_request, write_request
    from noisewise.holder.requests.glm import GlmRequest, make_glm_request
    from noisewise.holder.requests.regression import Request, make_request
    from noisewise.holder.requests.summary import (
        BlockFunction,
        SummaryRequest,
        make_summary_request,
    )
    from noisewise.planning.plan import plan

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
    "holder.ledger": ("Ledger",),
    "holder.publish": ("publish",),
    "holder.requests.file": ("read_request", "write_request"),
    "holder.requests.glm": ("GlmRequest", "make_glm_request"),
    "holder.requests.network": ("NetworkRequest", "make_network_request"),
    "holder.requests.regression": ("Request", "make_request"),
    "holder.requests.summary": ("BlockFunction", "SummaryRequest", "make_summary_request"),
    "planning.plan": ("plan",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BlockFunction",
    "Category",
    "CoefficientPrior",
    "DrawsPosterior",
    "GlmPosterior",
    "GlmRelease",
    "GlmRequest",
    "Ledger",
    "Network",
    "NetworkPosterior",
    "NetworkRelease",
    "NetworkRequest",
    "NoisewiseError",
    "Number",
    "Posterior",
    "Release",
    "Request",
    "Schema",
    "SummaryPosterior",
    "SummaryRelease",
    "SummaryRequest",
    "Unbounded",
    "Words",
    "__version__",
    "ada_ssp",
    "compare",
    "fit",
    "load_posterior",
    "load_release",
    "make_glm_request",
    "make_network_request",
    "make_request",
    "make_summary_request",
    "plan",
    "pool",
    "publish",
    "read_request",
    "read_schema",
    "write_request",
    "write_schema",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'noisewise' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
