"""Statements about parameters, such as ``"-0.1 < age < 0.1"`` or ``"a > 0 and 2 * b > c"``.

A statement compares parameters, numbers and what ``+ - * / abs( )`` make of them, and joins
comparisons with ``and``, ``or`` and ``not``. It is true or false at every draw; its probability is
the share of the draws for which it is true.

Names may hold anything: ``group[<30]`` is one name. A known name is taken as it stands, the longest
that fits; between backticks stands a name and nothing else, ```and` > 0``. Names come from Releases
of others, so no text is ever run: names become placeholders, Python's own grammar takes the rest to
pieces (`ast.parse`, which runs nothing), and only what is listed here is computed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError

MAX_LENGTH = 1000  # characters
MAX_PARTS = 200  # names, numbers and signs; also bounds how deep a statement is nested
_EXAMPLES = "'age > 0', '-0.1 < age < 0.1', 'a > 0 and b > 0', '2 * a - b > 0' or 'abs(a) < 1'"
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?(?![\w.])")
_WORD = re.compile(r"(and|or|not|abs)\b")
_SIGN = re.compile(r"<=|>=|[-+*/()<>]")
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Statement:
    """A statement that was read."""

    text: str  # as it was given
    tree: ast.expr  # with placeholders ``_0``, ``_1``, ... for names
    names: tuple[str, ...]  # what the placeholders stand for

    def holds(self, draws: Callable[[str], FloatArray]) -> NDArray[np.bool_]:
        """Whether it is true, at every draw; `draws` has those of a name."""
        values = {f"_{i}": draws(name) for i, name in enumerate(self.names)}
        with np.errstate(all="ignore"):
            return np.asarray(_truth(self.tree, values, self.text))


def read_statement(
    statement: Any, names: Collection[str], known: Callable[[str], bool] | None = None
) -> Statement:
    """Take a statement to pieces.

    `names` may stand in it with or without backticks; `known` says of other names between backticks
    whether they mean something.
    """
    if not isinstance(statement, str) or not statement.strip():
        raise RequestError(f"prob: {statement!r} is not a statement such as {_EXAMPLES}")
    if len(statement) > MAX_LENGTH:
        raise RequestError(
            f"prob: a statement has at most {MAX_LENGTH} characters, this one {len(statement)}; "
            "ask for its parts"
        )
    found: list[str] = []
    parts = []
    for part, is_name in _parts(statement, names):
        if is_name:
            if part not in names and not (known is not None and known(part)):
                _unknown(part, names)
            if part not in found:
                found.append(part)
        parts.append(f"_{found.index(part)}" if is_name else part)
        if len(parts) > MAX_PARTS:
            raise RequestError(
                f"prob: a statement has at most {MAX_PARTS} names, numbers and signs; ask for its "
                "parts"
            )
    try:
        tree = ast.parse(" ".join(parts), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise RequestError(
            f"prob: {statement!r} is not complete, or in a wrong order; write {_EXAMPLES}"
        ) from None
    _truth(tree, {f"_{i}": np.ones(1) for i in range(len(found))}, statement)
    return Statement(statement, tree, tuple(found))


def bounds_on_one(statement: Statement) -> tuple[str, list[tuple[str, float]]] | None:
    """The name and its bounds, if a statement compares one name with numbers; otherwise None.

    ``"-1 < age <= 2"`` gives ``("age", [(">", -1.0), ("<=", 2.0)])``.
    """
    node, signs = statement.tree, {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
    if not isinstance(node, ast.Compare) or len(statement.names) != 1:
        return None
    sides = [node.left, *node.comparators]
    where = [i for i, side in enumerate(sides) if isinstance(side, ast.Name)]
    if len(where) != 1 or len(sides) > 3 or abs(where[0] - (len(sides) - 1) / 2) > 0.5:
        return None
    bounds = []
    for i, side in enumerate(sides):
        if i == where[0]:
            continue
        if any(isinstance(part, ast.Name) and part.id != "abs" for part in ast.walk(side)):
            return None
        sign = signs[type(node.ops[min(i, where[0])])]
        if i < where[0]:  # 0 < age says that age > 0
            sign = sign.translate(str.maketrans("<>", "><"))
        bounds.append((sign, float(_value(side, {}, statement.text))))
    return statement.names[0], bounds


def statement_probability(
    statement: Any,
    names: Collection[str],
    draws: Callable[[str], FloatArray],
    known: Callable[[str], bool] | None = None,
) -> float:
    """Share of the draws for which a statement holds; `draws` has those of a name."""
    return float(np.mean(read_statement(statement, names, known).holds(draws)))


# --- pieces ---------------------------------------------------------------------------------------


def _parts(text: str, names: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Names, numbers and signs in order, and whether each is a name."""
    place, longest_first = 0, sorted(names, key=len, reverse=True)
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        if text[place] == "`":
            end = text.find("`", place + 1)
            if end < 0:
                raise RequestError(f"prob: the name after a backtick has no end in {text!r}")
            yield text[place + 1 : end], True
            place = end + 1
            continue
        word, number, sign = (p.match(text, place) for p in (_WORD, _NUMBER, _SIGN))
        name = next((n for n in longest_first if _stands(n, text, place)), None)
        # A longer name may begin with a number or a word: "and more", "2nd visit".
        plain = number or word or sign
        if name is not None and (plain is None or len(name) > len(plain.group())):
            yield name, True
            place += len(name)
        elif plain is not None:
            yield repr(float(plain.group())) if plain is number else plain.group(), False
            place = plain.end()
        else:
            _unknown(re.split(r"[\s<>()*/+`-]", text[place:])[0] or text[place:], names)


def _stands(name: str, text: str, place: int) -> bool:
    """Whether a name stands at this place, and not just the beginning of a longer word."""
    end = place + len(name)
    if not name or not text.startswith(name, place):
        return False
    return not (_is_letter(name[-1]) and end < len(text) and _is_letter(text[end]))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character in "_["


def _unknown(name: str, names: Collection[str]) -> NoReturn:
    shown = ", ".join(list(names)[:20]) + (", ..." if len(names) > 20 else "")
    quoted = " Names with signs in them stand between backticks" if "`" not in name else ""
    raise RequestError(
        f"prob: {name!r} is neither a parameter ({shown}) nor a number; write {_EXAMPLES}.{quoted}"
    )


# --- what a statement may compute -----------------------------------------------------------------


def _truth(node: ast.expr, values: dict[str, FloatArray], text: str) -> Any:
    """Where a statement is true."""
    if isinstance(node, ast.Compare):
        sides = [_value(side, values, text) for side in (node.left, *node.comparators)]
        holds: Any = True
        for sign, left, right in zip(node.ops, sides, sides[1:], strict=False):
            holds = np.logical_and(holds, _COMPARED[type(sign)](left, right))
        return holds
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return join.reduce([_truth(part, values, text) for part in node.values])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return np.logical_not(_truth(node.operand, values, text))
    raise RequestError(
        f"prob: {text!r} has a part that is a number, where something true or false is wanted: "
        f"compare it, as in {_EXAMPLES}"
    )


def _value(node: ast.expr, values: dict[str, FloatArray], text: str) -> Any:
    """A number at every draw."""
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, values, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        sides = [_value(side, values, text) for side in (node.left, node.right)]
        return _COMPUTED[type(node.op)](np.asarray(sides[0]), sides[1])
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "abs"
        and len(node.args) == 1
    ):
        return np.abs(_value(node.args[0], values, text))
    raise RequestError(f"prob: {text!r} can't be computed; there are + - * / abs( ) and numbers")
