"""Formulas such as ``visits ~ coinsurance*health + log1p(income) + bs(age, knots=(30, 50))``.

The grammar is that of formulaic, which is used for it and for nothing else: sums, interactions and
their shorthands become sets of factors. What a factor means is decided by `term`. formulaic is
imported when a formula is read, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.schema import Schema
from noisewise.core.terms.term import Cut, Levels, Term, plain_factor, read_factor

MAX_FORMULA = 10_000
_EXAMPLE = "such as 'visits ~ age + log1p(income)'"


def read_formula(formula: str, schema: Schema) -> tuple[str, list[str]]:
    """The target and the features of a formula, as `Design` takes them.

    Features are names of columns and canonical texts of terms, lower interactions first.
    """
    if not isinstance(formula, str) or not formula.strip() or len(formula) > MAX_FORMULA:
        raise RequestError(f"formula: expected a text {_EXAMPLE}")
    left, right = _sides(formula)
    if len(left) != 1:
        raise RequestError(f"formula: expected one target, left of '~', {_EXAMPLE}")
    target = _term(left[0], schema)
    constant = [term for term in right if _is_intercept(term)]
    terms = [_term(term, schema) for term in right if not _is_intercept(term)]
    if not constant:
        raise RequestError(
            "formula: a model without an intercept cannot be fitted (yet); leave out 0 and -1"
        )
    if not terms:
        raise RequestError(f"formula: no features, right of '~'; name at least one, {_EXAMPLE}")
    terms.sort(key=lambda term: len(term.factors))
    _check_margins(terms)
    for term in (target, *terms):
        if term.column is None and term.text in schema.columns:
            raise RequestError(
                f"formula: {term.text} is a term and the name of a column too; rename the column"
            )
    return target.feature, list(dict.fromkeys(term.feature for term in terms))


def _sides(formula: str) -> tuple[list[Any], list[Any]]:
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser
    from formulaic.parser.algos.tokenize import tokenize

    try:
        before = ""
        for token in tokenize(formula):
            if token.token in ("**", "^") and before != ")":
                raise RequestError(
                    f"formula: {before}{token.token} is a power of formulas, not of numbers; write "
                    f"I({before}**2)"
                )
            if token.token == ".":
                raise RequestError("formula: '.' stands for all columns; name those that you mean")
            before = token.token
        found = DefaultFormulaParser().get_terms(formula)
    except FormulaicError as error:
        problem = str(error).partition("\n")[0].rstrip(".")[:120]
        raise RequestError(
            f"formula: it cannot be read ({problem}); expected a text {_EXAMPLE}"
        ) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RequestError(f"formula: it cannot be read; expected a text {_EXAMPLE}") from None
    if set(found._structure) != {"lhs", "rhs"}:
        raise RequestError(f"formula: expected a target, '~' and features, {_EXAMPLE}")
    sides = found._structure["lhs"], found._structure["rhs"]
    if any(isinstance(side, tuple) for side in sides):
        raise RequestError("formula: '|' is not supported; write one formula for each regression")
    return list(sides[0]), list(sides[1])


def _is_intercept(term: Any) -> bool:
    return [factor.expr for factor in term.factors] == ["1"]


def _term(term: Any, schema: Schema) -> Term:
    factors = []
    for factor in term.factors:
        how = factor.eval_method.value
        if how == "literal":
            raise RequestError(
                f"formula: the number {factor.expr} cannot scale a term; coefficients have the "
                "units of their columns"
            )
        read = plain_factor if how == "lookup" else read_factor
        factors.append(read(factor.expr, schema))
    return Term.of(factors)


def _check_margins(terms: Sequence[Term]) -> None:
    """A category is coded against its reference, so what it interacts with must be there alone.

    In ``y ~ region + age:region`` other software gives each region a slope of its own. Here the
    reference would be left without one, because its indicator is left out.
    """
    known = {term.text for term in terms}
    for term in terms:
        for factor in term.factors:
            others = [other for other in term.factors if other is not factor]
            if not isinstance(factor, Levels | Cut) or not others:
                continue
            needed = Term.of(others).text
            if needed not in known:
                raise RequestError(
                    f"formula: {term.text} without {needed} would leave the reference level of "
                    f"{factor.text} without it; add {needed}, or write a*b in place of a:b"
                )
