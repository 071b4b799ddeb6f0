"""Arithmetic on numeric columns: ``log1p(income)``, ``I((age - 54)**2)``; and bases of splines.

**Bounds** follow from those of the columns by interval arithmetic, and from nothing in the rows. A
value is confined to them before it is used (`Term.confined`), so nothing about privacy depends on
them being right.

**The same integers everywhere.** Values are computed by +, -, *, /, the square root, comparisons
and the splitting of a double into its digits and its power of two. IEEE 754 fixes each of them to
the last bit, and each is one pass over a vector, so neither the machine, nor the library of
mathematical functions, nor the length of the vector can make a difference. NumPy's own `log`
promises nothing of that kind: it may take another way for the last few elements of a vector.

    ln x = e ln 2 + ln m with m in [√½, √2),   ln m = 2 artanh s,   s = (m - 1) / (m + 1),

|s| < 0.1716, and after eleven terms the series of artanh has a relative error below 1e-17.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema

FUNCTIONS = ("log", "log1p", "sqrt", "asinh")
MAX_POWER = 8
_LARGEST = 1e60  # as for half-widths of bounds (`core.schema`)
_DEEPEST = 20

Interval = tuple[float, float]


@dataclass(frozen=True)
class Expression:
    """A node of a tree."""

    op: str  # "column", "constant", one of ``+ - * / **``, "negative", or one of `FUNCTIONS`
    parts: tuple[Expression, ...] = ()
    value: str | float | None = None  # the column's name, the constant, or the exponent of a power

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, each once, in order."""
        if self.op == "column":
            return (str(self.value),)
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    @property
    def text(self) -> str:
        return _text(self, 0)

    @property
    def degree(self) -> float:
        """Of the polynomial that it is; infinite if it is none."""
        if self.op in ("column", "constant"):
            return float(self.op == "column")
        inner = [part.degree for part in self.parts]
        if self.op == "**":
            assert isinstance(self.value, float)
            return inner[0] * self.value
        if self.op == "*":
            return sum(inner)
        if self.op in FUNCTIONS or (self.op == "/" and inner[1] > 0):
            return math.inf
        return max(inner)

    def interval(self, schema: Schema) -> Interval:
        """Bounds that follow from those of the columns, by interval arithmetic."""
        found = _interval(self, schema)
        if not all(abs(end) <= _LARGEST for end in found):
            _refuse(self, f"its values could be larger than {_LARGEST:g}; give columns other units")
        return found

    def values(self, table: Mapping[str, Any]) -> FloatArray:
        """Its value in every row, from the columns' values."""
        return _values(self, table)


def _refuse(expression: Expression, problem: str) -> NoReturn:
    raise RequestError(f"formula: {expression.text}: {problem}")


# --- from text and back ---------------------------------------------------------------------------

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**",
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "negative": 3, "**": 4}


def parsed(node: ast.expr, names: Mapping[str, str], depth: int = 0) -> Expression:
    """The expression that a tree of Python's grammar stands for; refuses all that is not listed.

    `names` has what stands for a quoted name in the tree, with the name itself.
    """
    if depth > _DEEPEST:
        raise RequestError("formula: an expression is nested too deeply; simplify it")

    def inner(part: ast.expr) -> Expression:
        return parsed(part, names, depth + 1)

    if isinstance(node, ast.Name):
        return Expression("column", value=names.get(node.id, node.id))
    if isinstance(node, ast.Constant):
        return Expression("constant", value=number(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        part = inner(node.operand)
        if part.op == "constant":
            assert isinstance(part.value, float)
            return Expression("constant", value=-part.value)
        return Expression("negative", (part,))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        op = _OPERATORS[type(node.op)]
        if op == "**":
            return Expression(op, (inner(node.left),), _exponent(node.right))
        return Expression(op, (inner(node.left), inner(node.right)))
    if isinstance(node, ast.Call):
        name = called(node)
        if name == "I" and len(node.args) == 1 and not node.keywords:
            return inner(node.args[0])
        if name not in FUNCTIONS:
            raise RequestError(
                f"formula: {name} cannot be used within an expression; there are "
                f"{', '.join(FUNCTIONS)} and + - * / **"
            )
        if len(node.args) != 1 or node.keywords:
            raise RequestError(f"formula: {name} takes one argument, such as {name}(income)")
        return Expression(name, (inner(node.args[0]),))
    raise RequestError(
        f"formula: {_excerpt(node)} cannot be used; an expression has columns, numbers, + - * / ** "
        f"and {', '.join(FUNCTIONS)}"
    )


def called(node: ast.Call) -> str:
    """The name of a function that is called."""
    if isinstance(node.func, ast.Name):
        return node.func.id
    if isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
        raise RequestError(
            f"formula: write {node.func.attr}(...) in place of {_excerpt(node.func)}(...)"
        )
    raise RequestError(f"formula: {_excerpt(node.func)} is not a function that can be used")


def number(node: ast.expr) -> float:
    """A finite number, which may have a sign."""
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1.0, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise RequestError(f"formula: expected a number, got {_excerpt(node)}")
    return sign * float(value)


def _exponent(node: ast.expr) -> float:
    power = number(node)
    if power not in range(2, MAX_POWER + 1):
        raise RequestError(
            f"formula: powers are whole numbers from 2 to {MAX_POWER}, got {number_text(power)}; "
            "for a root use sqrt, for an inverse use /"
        )
    return power


def _excerpt(node: ast.expr) -> str:
    try:
        text = ast.unparse(node)
    except RecursionError:
        text = "what is nested so deeply"
    return text if len(text) <= 40 else text[:37] + "..."


def number_text(value: float) -> str:
    """The shortest text of a number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def name_text(name: str) -> str:
    """A column's name as it stands in a term: in backticks unless it is a plain word."""
    plain = name.isidentifier() and name.isascii()
    if "`" in name:
        raise RequestError(
            f"formula: the column {name!r} has a backtick in its name; rename it to use it in terms"
        )
    return name if plain and name not in _TAKEN else f"`{name}`"


_TAKEN = frozenset(
    {*FUNCTIONS, "I", "C", "cut", "bs", "ns", "and", "or", "not", "is", "in", "if", "else", "for"}
    | {"lambda", "None", "True", "False", "await", "async", "yield", "from", "import", "as", "with"}
    | {"while", "def", "class", "return", "try", "except", "finally", "raise", "pass", "break"}
    | {"continue", "global", "nonlocal", "del", "assert", "elif"}
)


def _text(e: Expression, outside: int) -> str:
    if e.op == "column":
        return name_text(str(e.value))
    if e.op == "constant":
        assert isinstance(e.value, float)
        written = number_text(e.value)
        return f"({written})" if e.value < 0 and outside else written
    if e.op in FUNCTIONS:
        return f"{e.op}({_text(e.parts[0], 0)})"
    own = _STRENGTH[e.op]
    if e.op == "negative":
        written = f"-{_text(e.parts[0], own)}"
    elif e.op == "**":
        assert isinstance(e.value, float)
        written = f"{_text(e.parts[0], own + 1)}**{number_text(e.value)}"
    else:
        # The right side binds closer: a - (b - c) keeps its brackets, (a - b) - c needs none.
        left, right = _text(e.parts[0], own), _text(e.parts[1], own + 1)
        written = f"{left} {e.op} {right}" if own == 1 else f"{left}{e.op}{right}"
    return f"({written})" if own < outside else written


# --- bounds ---------------------------------------------------------------------------------------


def bounds_of(name: str, schema: Schema) -> Interval:
    """The public bounds of a numeric column."""
    declared = schema.columns.get(name)
    if declared is None:
        known = ", ".join(list(schema.columns)[:20])
        raise RequestError(
            f"formula: {name!r} is not declared in the schema; declared are: {known}"
        )
    if isinstance(declared, Category):
        raise RequestError(
            f"formula: {name!r} is a category, which has no arithmetic; use it alone, or in an "
            "interaction such as age:region"
        )
    if not isinstance(declared, Number):
        raise RequestError(
            f"formula: column {name!r} has no bounds, so terms of it have none; declare lower and "
            "upper"
        )
    return declared.lower, declared.upper


def product_of(a: Interval, b: Interval) -> Interval:
    """All products of a value in one interval and a value in the other."""
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _interval(e: Expression, schema: Schema) -> Interval:
    """By the operations that values are computed with, so that values keep within it.

    Rounding is monotone, and so are +, -, *, / and repeated products. The functions are nearly so;
    the holder confines what comes out (`Term.confined`).
    """
    low, high = _of_parts(e, schema)
    if not (math.isfinite(low) and math.isfinite(high)):
        _refuse(e, "its values are too large to compute with; give columns other units")
    return low, high


def _of_parts(e: Expression, schema: Schema) -> Interval:
    if e.op == "column":
        return bounds_of(str(e.value), schema)
    if e.op == "constant":
        assert isinstance(e.value, float)
        return e.value, e.value
    low, high = _interval(e.parts[0], schema)
    if e.op == "negative":
        return -high, -low
    if e.op == "**":
        assert isinstance(e.value, float)
        ends = sorted(math.prod([end] * int(e.value)) for end in (low, high))
        return (0.0 if e.value % 2 == 0 and low <= 0 <= high else ends[0]), ends[1]
    if e.op in FUNCTIONS:
        _check_domain(e, low, high)
        first, last = (float(_FUNCTIONS[e.op](np.array([end]))[0]) for end in (low, high))
        return first, last  # all of them grow
    other = _interval(e.parts[1], schema)
    if e.op == "+":
        return low + other[0], high + other[1]
    if e.op == "-":
        return low - other[1], high - other[0]
    if e.op == "/":
        if other[0] <= 0 <= other[1]:
            _refuse(e, "it divides by something that can be 0 within the bounds; add a constant")
        ends = [_quotient(x, y) for x in (low, high) for y in other]
        return min(ends), max(ends)
    return product_of((low, high), other)


def _quotient(x: float, y: float) -> float:
    try:
        return x / y
    except OverflowError:
        return math.inf


def _check_domain(e: Expression, low: float, high: float) -> None:
    inside = f"its argument is from {number_text(low)} to {number_text(high)} within the bounds"
    if not all(math.isfinite(end) for end in (low, high)):
        _refuse(e, f"{inside}; give columns other units")
    if e.op == "log" and low <= 0:
        remedy = "use log1p" if low > -1 else "use asinh, which takes every number"
        _refuse(e, f"{inside}, and log needs more than 0; {remedy}, or raise the lower bound")
    if e.op == "log1p" and low <= -1:
        _refuse(e, f"{inside}, and log1p needs more than -1; use asinh, or raise the lower bound")
    if e.op == "sqrt" and low < 0:
        _refuse(e, f"{inside}, and sqrt needs 0 or more; raise the lower bound")


# --- values ---------------------------------------------------------------------------------------


def _values(e: Expression, table: Mapping[str, Any]) -> FloatArray:
    if e.op == "column":
        return np.asarray(table[str(e.value)], dtype=np.float64)
    if e.op == "constant":
        return np.array(float(e.value or 0.0))
    first = _values(e.parts[0], table)
    if e.op == "negative":
        return -first
    if e.op in FUNCTIONS:
        return _FUNCTIONS[e.op](np.atleast_1d(first))
    if e.op == "**":
        assert isinstance(e.value, float)
        power = first
        for _ in range(int(e.value) - 1):
            power = power * first
        return power
    return np.asarray(_ARITHMETIC[e.op](first, _values(e.parts[1], table)))


_LN2 = math.log(2.0)
_HALF_ROOT = math.sqrt(0.5)
_SERIES = tuple(1 / (2 * j + 1) for j in range(11, 0, -1))  # 1/23, ..., 1/3
_NEAR = 0.25  # of 0, where log1p keeps the digits of a small argument


def _log(x: FloatArray) -> FloatArray:
    digits, power = np.frexp(x)
    low = digits < _HALF_ROOT
    digits = np.where(low, digits * 2.0, digits)
    power = np.where(low, power - 1, power).astype(np.float64)
    return np.asarray(power * _LN2 + _twice_artanh((digits - 1.0) / (digits + 1.0)))


def _twice_artanh(s: FloatArray) -> FloatArray:
    square = s * s
    series = np.full_like(s, _SERIES[0])
    for coefficient in _SERIES[1:]:
        series = series * square
        series = series + coefficient
    twice = 2.0 * s
    return np.asarray(twice + twice * square * series)


def _log1p(x: FloatArray) -> FloatArray:
    near = np.abs(x) < _NEAR
    small = np.where(near, x, 0.0)
    # log(1 + x) = 2 artanh(x / (2 + x))
    return np.where(near, _twice_artanh(small / (2.0 + small)), _log(1.0 + x))


def _asinh(x: FloatArray) -> FloatArray:
    # ln(|x| + sqrt(x² + 1)) = log1p(|x| + x² / (1 + sqrt(x² + 1)))
    size = np.abs(x)
    square = size * size
    return np.asarray(np.copysign(_log1p(size + square / (1.0 + np.sqrt(square + 1.0))), x))


_FUNCTIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "log": _log,
    "log1p": _log1p,
    "sqrt": np.sqrt,
    "asinh": _asinh,
}


# --- splines with public knots; the outermost knots are a column's bounds -------------------------
#
# **B-splines.** On m knots within the bounds, of degree p, there are m + p + 1 functions. They are
# at least 0 and add up to 1 everywhere, so without the first one (the intercept has its place) a
# row's values are at least 0 and add up to at most 1: what is known of a category's indicators too.
# Computed by the recursion of Cox and de Boor, each value is a sum of products of numbers that are
# at least 0, so it has a relative error below 8(p + 1) 2**-53, and so has their sum.
#
# **Natural splines.** Cubic between knots, straight beyond the bounds, on the knots ξ_0 < ... <
# ξ_m+1 with both bounds among them. The basis is the cardinal one: function k is 1 at ξ_k and 0 at
# all other knots. So the coefficient of function k is how much higher the curve is at ξ_k than at
# the lower bound, whose function is left out. They add up to 1, but may be a little below 0 or
# above 1 between knots: each has bounds of its own.


def b_spline(
    x: FloatArray, ends: tuple[float, float], knots: Sequence[float], degree: int
) -> list[FloatArray]:
    """Values of all B-splines but the first at x, which is confined to the bounds first."""
    low, high = ends
    x = np.minimum(np.maximum(x, low), high)
    t = [low] * (degree + 1) + list(knots) + [high] * (degree + 1)
    last = degree + len(knots)  # the interval that the upper bound belongs to
    found = [
        (x >= t[j]) & ((x < t[j + 1]) if j < last else (x <= t[j + 1])) & (t[j] < t[j + 1])
        for j in range(len(t) - 1)
    ]
    basis = [inside.astype(np.float64) for inside in found]
    for p in range(1, degree + 1):
        higher = []
        for j in range(len(t) - 1 - p):
            value = np.zeros_like(x)
            if t[j] < t[j + p]:
                value = value + (x - t[j]) / (t[j + p] - t[j]) * basis[j]
            if t[j + 1] < t[j + p + 1]:
                value = value + (t[j + p + 1] - x) / (t[j + p + 1] - t[j + 1]) * basis[j + 1]
            higher.append(value)
        basis = higher
    return basis[1:]


def natural_spline(
    x: FloatArray, ends: tuple[float, float], knots: Sequence[float]
) -> list[FloatArray]:
    """Values of all cardinal natural splines but the first at x, confined to the bounds first."""
    low, high = ends
    x = np.minimum(np.maximum(x, low), high)
    points = [low, *knots, high]
    bends = _second_derivatives(points)
    place = np.searchsorted(np.array(knots, dtype=np.float64), x, side="right")
    at = np.array(points)
    left, right = at[place], at[place + 1]
    h = right - left
    after, before = x - left, right - x
    # The cubic with given ends and second derivatives there.
    c_left = (before * before * before / h - h * before) / 6.0
    c_right = (after * after * after / h - h * after) / 6.0
    values = []
    for k in range(1, len(points)):
        bend = np.array(bends[k])
        straight = before / h * (place == k) + after / h * (place + 1 == k)
        values.append(straight + c_left * bend[place] + c_right * bend[place + 1])
    return values


def natural_spline_bounds(
    ends: tuple[float, float], knots: Sequence[float]
) -> list[tuple[float, float]]:
    """The smallest and the largest value of each function of `natural_spline`.

    Between two knots a function is a cubic: its extremes are there or where its slope is 0.
    """
    points = [ends[0], *knots, ends[1]]
    bends = _second_derivatives(points)
    found = []
    for k in range(1, len(points)):
        candidates = list(points)
        for j in range(len(points) - 1):
            h = points[j + 1] - points[j]
            g, g_next = bends[k][j] * h, bends[k][j + 1] * h
            rise = (float(j + 1 == k) - float(j == k)) / h
            # Slope at left + u h: rise + g (-3(1-u)² + 1) / 6 + g_next (3u² - 1) / 6.
            a, b, c = (g_next - g) / 2, g, rise - g / 3 - g_next / 6
            candidates += [points[j] + u * h for u in _roots(a, b, c) if 0 < u < 1]
        values = natural_spline(np.array(candidates), ends, knots)[k - 1]
        found.append((min(0.0, float(values.min())), max(1.0, float(values.max()))))
    return found


def _roots(a: float, b: float, c: float) -> list[float]:
    if a == 0.0:
        return [] if b == 0.0 else [-c / b]
    square = b * b - 4 * a * c
    if square < 0:
        return []
    q = -(b + math.copysign(math.sqrt(square), b)) / 2
    return [q / a] if q == 0.0 else [q / a, c / q]


def _second_derivatives(points: Sequence[float]) -> list[list[float]]:
    """Of every cardinal function at every knot, by elimination in a tridiagonal system.

    At inner knots h_j γ_j-1 + 2 (h_j + h_j+1) γ_j + h_j+1 γ_j+1 = 6 (change of slope); 0 at ends.
    """
    m = len(points) - 1
    h = [points[j + 1] - points[j] for j in range(m)]
    found = []
    for k in range(m + 1):
        y = [float(j == k) for j in range(m + 1)]
        slope = [(y[j + 1] - y[j]) / h[j] for j in range(m)]
        diagonal, right = [0.0] * (m + 1), [0.0] * (m + 1)
        for j in range(1, m):
            factor = h[j - 1] / diagonal[j - 1] if j > 1 else 0.0
            diagonal[j] = 2 * (h[j - 1] + h[j]) - factor * h[j - 1]
            right[j] = 6 * (slope[j] - slope[j - 1]) - factor * right[j - 1]
        bend = [0.0] * (m + 1)
        for j in range(m - 1, 0, -1):
            bend[j] = (right[j] - h[j] * bend[j + 1]) / diagonal[j]
        found.append(bend)
    return found
