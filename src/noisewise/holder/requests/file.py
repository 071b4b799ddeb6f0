"""A request as a small file: what is asked for, without the rows, the ledger and the output.

    release: regression
    schema: schema.yaml
    target: income
    features: [age, region]
    epsilon: 1

The keys are the options of the publishing commands, with "_" for "-". A request that is read from
a file and one that is made from the same options have the same key, so they are one Release.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.summary.mechanisms import BlockPosterior, Flat, GPrior
from noisewise.core.privacy import as_fraction
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import PlainYamlError, parse_yaml, read_schema, read_yaml
from noisewise.holder.requests.base import Publishable
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.glm import make_glm_request
from noisewise.holder.requests.network import LEARN, make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request

KEYS: dict[str, tuple[str, ...]] = {
    "regression": (
        "target", "features", "formula", "epsilon", "delta", "rho", "mechanism", "radius", "layout",
        "fourth_moments", "smallest_eigenvalue", "rounds", "reach_of", "family", "label",
    ),
    "summary": (
        "target", "features", "epsilon", "ask", "coefficients", "quantiles", "bounds", "base",
        "mechanism", "model", "rows", "blocks", "partitions", "posterior", "g", "clip", "p_star",
        "label",
    ),
    "network": (
        "graph", "edges", "naive_bayes", "features", "epsilon", "delta", "mechanism", "kind",
        "draws", "omega", "temper", "points", "concentration", "label",
    ),
    "draws": (
        "target", "features", "noise_sd", "epsilon", "draws", "radius", "largest_norm",
        "prior_precision", "label",
    ),
}  # fmt: skip
"""What each kind of request may say."""

_NEEDED = {
    "regression": (),  # target and features, or a formula
    "summary": ("target", "features"),
    "network": (),
    "draws": ("target", "features", "noise_sd"),
}
# What is left out of a file if an option says the other.
_INSTEAD = {
    "formula": ("target", "features"),
    "target": ("formula",),
    "features": ("formula",),
    "epsilon": ("rho",),
    "delta": ("rho",),
    "rho": ("epsilon", "delta"),
    "ask": ("coefficients", "quantiles"),
    "coefficients": ("ask",),
    "graph": ("edges", "naive_bayes", "features"),
    "edges": ("graph", "naive_bayes", "features"),
    "naive_bayes": ("graph", "edges"),
}


@dataclass(frozen=True)
class Asked:
    """What is asked for, in the words of a request file."""

    kind: str  # regression, summary, network, draws
    words: Mapping[str, Any]  # by key of the file
    schema: Path | None = None  # the schema file, if it is named

    def __post_init__(self) -> None:
        _check_keys(self.kind, self.words)
        words = {key: _CHECKS.get(key, _amount)(value, key) for key, value in self.words.items()}
        object.__setattr__(self, "words", words)

    def changed(self, words: Mapping[str, Any]) -> Asked:
        """With these words in place of its own."""
        dropped = {other for key in words for other in _INSTEAD.get(key, ())}
        kept = {key: value for key, value in self.words.items() if key not in dropped}
        return replace(self, words={**kept, **words})

    def read_schema(self) -> Schema:
        """The schema that it names."""
        if self.schema is None:
            raise RequestError(
                "schema: not given; name the schema file, or add a line such as 'schema: "
                "schema.yaml' to the request file"
            )
        return read_schema(self.schema)

    def needed(self, key: str) -> Any:
        """What it says, if it says it."""
        if key not in self.words:
            raise RequestError(f"{key}: not given; a {self.kind} request needs it")
        return self.words[key]

    def make(self, schema: Schema | None = None, **more: Any) -> Publishable[Any]:
        """The request, checked; `more` goes to the kind's own function, such as a batch."""
        schema = self.read_schema() if schema is None else schema
        for key in _NEEDED[self.kind]:
            self.needed(key)
        return _MAKERS[self.kind](schema, **{**self.words, **more})

    def save(self, path: str | Path) -> None:
        """Write the file. One that is there stays, unless it says the same."""
        path = Path(path)
        document: dict[str, Any] = {"release": self.kind}
        if self.schema is not None:
            document["schema"] = _beside(self.schema, path.parent)
        for key in KEYS[self.kind]:
            if key in self.words:
                document[key] = _tidy(key, self.words[key])
        if "reach_of" in document:
            document["reach_of"] = _beside(document["reach_of"], path.parent)
        text = "".join(f"{key}: {_yaml(value)}\n" for key, value in document.items())
        if parse_yaml(text) != json.loads(json.dumps(document)):
            raise RequestError("request: it has a text that cannot be written to a YAML file")
        try:
            if path.exists():
                if path.read_text(encoding="utf-8") == text:
                    return
                raise RequestError(
                    f"request: {path} exists and says something else; choose another"
                )
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"request: cannot write {path}: {error.strerror}") from None


def read_asked(path: str | Path) -> Asked:
    """Read and check a request file; files that it names are relative to its folder.

    Raises
    ------
    RequestError
        With the file and the remedy.
    """
    path = Path(path)
    try:
        document = read_yaml(path)
        if not isinstance(document, dict):
            raise RequestError("expected lines such as 'target: income'")
        given = dict(document)
        kind, schema = given.pop("release", None), given.pop("schema", None)
        if kind not in KEYS:
            raise RequestError(
                f"release: expected what is published, one of {', '.join(KEYS)}, such as "
                "'release: regression'"
            )
        if schema is not None and (not isinstance(schema, str) or not schema):
            raise RequestError("schema: expected the name of the schema file")
        if isinstance(given.get("reach_of"), str):
            given["reach_of"] = str(path.parent / given["reach_of"])
        return Asked(kind, given, None if schema is None else path.parent / schema)
    except FileNotFoundError:
        raise RequestError(f"request: there is no file {path}") from None
    except (PlainYamlError, RequestError) as error:
        raise RequestError(f"{path}: {error}") from None


def read_request(path: str | Path, schema: Schema | None = None) -> Publishable[Any]:
    """The request that a file describes.

    Parameters
    ----------
    path : path
    schema : Schema, optional
        In place of the one that the file names.
    """
    return read_asked(path).make(schema)


def write_request(
    path: str | Path, release: str = "regression", *, schema: str | Path | None = None, **words: Any
) -> None:
    """Write a request file.

    Parameters
    ----------
    path : path
    release : {"regression", "summary", "network", "draws"}
    schema : path, optional
        The schema file that it names.
    **words
        As in the file: `target`, `features`, `epsilon` and so on.
    """
    Asked(release, words, None if schema is None else Path(schema)).save(path)


# --- keys and values ------------------------------------------------------------------------------


def _check_keys(kind: str, words: Mapping[str, Any]) -> None:
    if kind not in KEYS:
        raise RequestError(f"release: {kind!r} is unknown; use one of {', '.join(KEYS)}")
    for key in words:
        if key not in KEYS[kind]:
            near = difflib.get_close_matches(str(key), KEYS[kind], 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KEYS[kind])}"
            raise RequestError(f"{key}: a {kind} request has no such key; {remedy}")


def _names(value: Any, key: str) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise RequestError(f"{key}: expected a list of texts, such as [age, region]")
    return list(value)


def _questions(value: Any, key: str) -> list[str]:
    return _names([value] if isinstance(value, str) else value, key)


def _one(what: str, *kinds: type, remedy: str = "", made: Any = None) -> Callable[[Any, str], Any]:
    def check(value: Any, key: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise RequestError(f"{key}: expected {what}, got {value!r}{remedy}")
        return value if made is None else made(value)

    return check


_text = _one("text", str, remedy="; put it in quotes")
_number = _one("a number", int, float, made=float)
_whole = _one("a whole number", int)
_amount = _one("a number", int, float, str)


def _numbers(value: Any, key: str) -> list[float]:
    if not isinstance(value, list | tuple):
        raise RequestError(f"{key}: expected a list of numbers, such as [0.05, 0.95]")
    return [_number(each, key) for each in value]


def _pairs(value: Any, key: str) -> dict[str, tuple[float, float]]:
    pairs: list[Any] = list(value.items()) if isinstance(value, dict) else [("", None)]
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for _name, pair in pairs):
        raise RequestError(f"{key}: expected two numbers for each name, such as {{age: [-10, 10]}}")
    return {_text(name, key): (_number(a, key), _number(b, key)) for name, (a, b) in pairs}


def _graph(value: Any, key: str) -> dict[str, Any] | str:
    if value == LEARN:
        return LEARN
    if not isinstance(value, dict):
        raise RequestError(
            f"{key}: expected lines such as 'cough: [smoker, region]', or the word learn"
        )
    return {node: [] if parents is None else parents for node, parents in value.items()}


def _concentration(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {_text(name, key): _amount(each, key) for name, each in value.items()}
    return _amount(value, key)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("features", "coefficients", "edges"), _names),
    **dict.fromkeys(("radius", "g", "clip", "p_star"), _number),
    **dict.fromkeys(("rows", "blocks", "partitions", "draws", "points"), _whole),
    **dict.fromkeys(("bounds", "base"), _pairs),
    **dict.fromkeys(("target", "formula", "mechanism", "model", "layout"), _text),
    **dict.fromkeys(("family", "label", "posterior", "naive_bayes", "kind", "reach_of"), _text),
    "ask": _questions,
    "quantiles": _numbers,
    "graph": _graph,
    "concentration": _concentration,
}  # all others are amounts


def _tidy(key: str, value: Any) -> Any:
    """An amount that was given as text, as the number that it is."""
    if key in _CHECKS or not isinstance(value, str):
        return value
    try:
        parsed = parse_yaml(value)
        same = as_fraction(parsed, key) == as_fraction(value, key)
    except NoisewiseError:
        return value
    return parsed if same else value


def _beside(path: str | Path, folder: Path) -> str:
    """A file's name as a request file in this folder has it."""
    return Path(os.path.relpath(path, folder)).as_posix()


_PLAIN = re.compile(r"(?:\.\.?/)*[A-Za-z][\w./-]*", re.ASCII)
_NOT_PLAIN = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def _yaml(value: Any) -> str:
    """On one line. Texts are quoted unless every reader of YAML takes them for texts."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(key)}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return json.dumps(value, ensure_ascii=False)


# --- one function a kind --------------------------------------------------------------------------


def _summary(
    schema: Schema,
    *,
    ask: list[str] | tuple[str, ...] = (),
    base: dict[str, tuple[float, float]] | None = None,
    posterior: str = "flat",
    g: float | None = None,
    **words: Any,
) -> Publishable[Any]:
    return make_summary_request(
        schema, questions=ask, bases=base, posterior=_posterior(posterior, g), **words
    )


def _posterior(name: str, g: float | None) -> BlockPosterior:
    if name == "flat" and g is None:
        return Flat()
    if name == "g_prior":
        return GPrior("n" if g is None else g)
    if name == "flat":
        raise RequestError("g: the flat posterior has none; add --posterior g_prior")
    raise RequestError(f"posterior: {name!r} is unknown; use flat or g_prior")


def _network(
    schema: Schema,
    *,
    graph: dict[str, Any] | str | None = None,
    edges: list[str] | None = None,
    naive_bayes: str | None = None,
    features: list[str] | None = None,
    epsilon: Any = None,
    **words: Any,
) -> Publishable[Any]:
    if sum(given is not None for given in (graph, edges, naive_bayes)) != 1:
        raise RequestError("graph: give one of --graph, --edges and --naive-bayes")
    if graph == LEARN:
        words |= {"network": LEARN, "features": features}
        return make_network_request(schema, epsilon=epsilon, **words)
    if features is not None and naive_bayes is None:
        raise RequestError("features: they go with --naive-bayes and --graph learn; leave them out")
    if naive_bayes is not None:
        network = Network.naive_bayes(schema, naive_bayes, features)
    else:
        network = Network.make(schema, graph if edges is None else [*map(_edge, edges)])
    return make_network_request(schema, network=network, epsilon=epsilon, **words)


def _edge(text: str) -> tuple[str, str]:
    parts = [part.strip().rstrip("-").strip() for part in text.split(">")]
    if len(parts) != 2 or not all(parts):
        raise RequestError(
            f"edges: {text!r} is not an edge; write parent>child, separated by commas"
        )
    return parts[0], parts[1]


def _regression(schema: Schema, *, family: str = "linear", **words: Any) -> Publishable[Any]:
    """A linear regression, or one of yes/no or counts, which has fewer words."""
    if family == "linear":
        return make_request(schema, **words)
    if words.get("mechanism") == "gaussian":  # there is no other
        words.pop("mechanism")
    known = inspect.signature(make_glm_request).parameters
    for name, value in words.items():
        if name not in known and value is not None:
            raise RequestError(
                f"{name}: a {family} regression has no such option; leave it out (it is always in "
                "rounds, with Gaussian noise)"
            )
    words = {name: value for name, value in words.items() if name in known}
    return make_glm_request(schema, family=family, **words)  # type: ignore[arg-type]


_MAKERS: dict[str, Callable[..., Publishable[Any]]] = {
    "regression": _regression,
    "summary": _summary,
    "network": _network,
    "draws": make_regression_sample_request,
}
