"""What a batch of rows holds, in a form in which the same rows are recognised again.

Batches of a series are declared disjoint, and the commonest slip is to give the same file twice. So
the ledger keeps a keyed fingerprint of each batch (`ledger.refusals`), made from the texts that
`content_of` takes from the exact integers that a release has summed anyway: the same whatever the
order of the rows and the engine.

There is one text for each table column, with all that it says about this column alone: the number
of rows and the sums of the column and of its squares, or the counts of its levels. Two requests
with other features over the same rows then agree in every column that they have in common. Where
they ask for the same sums altogether, another text holds all of them, so that batches that agree in
every column by chance, as small ones of yes/no columns may, are told apart by their products.

How a column is declared is part of a text's name, because other bounds make other integers. So is
the kind of sums: numbers of block summaries are on another grid than those of regressions, and the
two are not compared; counts of levels are the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from noisewise.core.design import STATISTIC_ONE, Box, geometry_to_dict
from noisewise.core.schema import Category
from noisewise.core.statistics import SecondMoments
from noisewise.holder.blocks.sums import LIMB_BITS, BlockPlan, BlockSums
from noisewise.holder.networks.counts import CountPlan, FamilyCounts
from noisewise.holder.rows.sums import SumPlan, Sums

_LOW = (1 << 32) - 1


def content_of(plan: Any, result: Sums | FamilyCounts | BlockSums) -> dict[str, str]:
    """Texts about the rows, by what they are about. As private as the rows: never show them.

    Parameters
    ----------
    plan : SumPlan, CountPlan or BlockPlan
    result
        Of the plan's accumulator.
    """
    texts = {}
    for name, kind, values in _columns(plan, result):
        declared = plan.schema.restricted_to((name,)).to_dict()
        texts[_key(kind, declared)] = json.dumps([result.n, *values])
    if isinstance(plan, SumPlan) and isinstance(result, Sums):
        asked = [plan.design.schema.to_dict(), plan.design.sources, geometry_to_dict(plan.geometry)]
        sums = result.values[SecondMoments.name]
        texts[_key("second moments", asked)] = json.dumps([result.n, *sums])
    if isinstance(plan, CountPlan) and isinstance(result, FamilyCounts):
        asked = [plan.schema.to_dict(), plan.network.to_json()]
        tables = {node: table.ravel().tolist() for node, table in result.tables.items()}
        texts[_key("families", asked)] = json.dumps([result.n, tables], sort_keys=True)
    return texts


def _key(kind: str, asked: Any) -> str:
    description = json.dumps([kind, asked], sort_keys=True)
    return hashlib.sha256(description.encode()).hexdigest()[:32]


def _columns(plan: Any, result: Any) -> Iterator[tuple[str, str, Sequence[int]]]:
    """A column's name, the kind of its numbers, and the numbers."""
    if isinstance(plan, CountPlan):
        for node in plan.sources:
            table = result.tables[node]
            yield node, "levels", table.reshape(-1, table.shape[-1]).sum(axis=0).tolist()
        return
    design, blocks = plan.design, isinstance(plan, BlockPlan)
    sums: list[tuple[int, ...]]
    if blocks:
        sums = [(total,) for total in _block_sums(result, len(design.columns))]
    else:
        pairs = zip(SecondMoments(design).entries, result.values[SecondMoments.name], strict=True)
        entry = dict(pairs)
        places = range(1, len(design.columns) + 1)
        sums = [(entry[0, k], entry[k, k]) for k in places]
    # In a ball, the sums of a feature depend on the other features; those of the target don't.
    alone = blocks or isinstance(plan.geometry, Box)
    for name in design.sources if alone else (design.target,):
        declared = plan.schema.columns[name]
        own = {c.level: sums[k] for k, c in enumerate(design.columns) if c.source == name}
        if isinstance(declared, Category):
            one = 1 if blocks else STATISTIC_ONE
            counts = {level: total // one for level, (total, *_) in own.items()}
            rest = result.n - sum(counts.values())
            yield name, "levels", [counts.get(level, rest) for level in declared.levels]
        else:
            yield name, "blocks" if blocks else "sums", own[None]


def _block_sums(result: BlockSums, columns: int) -> list[int]:
    """The sums of the columns over all blocks of one partition, whoever is in which block."""
    limbs = result.limbs[0, :, 1 : 1 + 2 * columns]  # two for each column
    high, low = (limbs >> 32).sum(axis=0).tolist(), (limbs & _LOW).sum(axis=0).tolist()
    totals = [(h << 32) + rest for h, rest in zip(high, low, strict=True)]
    return [totals[2 * k] + (totals[2 * k + 1] << LIMB_BITS) for k in range(columns)]
