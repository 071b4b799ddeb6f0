"""A stream of batches: one Release a batch, in one folder, and the rows may be erased.

To an analyst the folder is as many holders. To the budget, batches add up like any releases,
unless the holder declares that nobody is in two batches of a series. The declaration goes by the
series' name, which is given with every batch and kept in the ledger (`Charge.series` says why it
is a name and not the folder). The folder is a second witness: if it and the name disagree about
which series this is, one of them is a mistake, and nothing is charged.

**The same rows again.** The commonest slip is to give the same file as two batches. So the ledger
keeps a keyed fingerprint of each batch (`ledger.refusals`), made from the texts that `content_of`
takes from the exact integers that a release has summed anyway: the same whatever the order of the
rows and the engine.

There is one text for each table column: the number of rows, and the sums of the column and of its
squares, or the counts of its levels. So requests with other features over the same rows agree in
every column that they have in common. Where they ask for the same sums altogether, another text
holds all of them: batches that agree in every column by chance, as small ones of yes/no columns
may, are told apart by their products.

How a column is declared is part of a text's name, because other bounds make other integers. So is
the kind of sums: block summaries have another grid. Counts of levels are the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from noisewise.core.design import STATISTIC_ONE, Box, geometry_to_dict
from noisewise.core.document import load, read_text
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category
from noisewise.core.statistics import SecondMoments
from noisewise.holder.blocks.sums import BlockPlan, BlockSums, exact_sum
from noisewise.holder.ledger import Charge, ChargeRecord, Ledger
from noisewise.holder.networks.counts import CountPlan, FamilyCounts
from noisewise.holder.requests.regression import Request
from noisewise.holder.rows.sums import SumPlan, Sums


def batch_path(
    folder: Path, batch: str, request: Request, charge: Charge, *, ledger: Ledger
) -> Path:
    """Where the batch's Release goes, after checking that it belongs to the series.

    Every Release of a series declares the same columns, features and target; otherwise the
    analyst could not put them together. A batch has one Release, which is never overwritten by
    another one. Nothing is read but Releases and the ledger, and nothing is charged.

    The folder of the series need not exist. The charge is what the request costs, with the name of
    the series if there is a declaration; the ledger knows the Releases of all series by their
    digests.
    """
    check_name("batch", batch)
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"append: {folder} is not a folder")
    paths = sorted(folder.glob("*.json"))
    for path in paths:
        _check_alike(path, request)
    published = _published(ledger, charge.dataset)
    own = next(
        (d for d, one in published.items() if one.charge.request_key == charge.request_key), None
    )
    target = folder / f"{batch}.json"
    if target.exists() and _digest(target) != own:
        raise RequestError(
            f"batch: {target} holds another Release, and a batch of a series has one. Give these "
            "rows another --batch; nothing was charged"
        )
    if charge.series is not None and own is None:  # a Release that exists already costs nothing
        here = [published[digest] for digest in map(_digest, paths) if digest in published]
        _check_witness(folder, charge.series, here, list(published.values()))
    return target


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be a file's on every system."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RequestError(
            f"{what}: {name!r} is not a usable name; use letters, digits, dots, dashes and "
            "underscores, such as 2026-09"
        )


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make the folder; if nothing comes of it, take back what was made."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    own: list[Path] = []
    try:
        for one in reversed(missing):
            with suppress(FileExistsError):  # another process has made it meanwhile
                one.mkdir()
                own.append(one)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RequestError(f"append: cannot make {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        for one in reversed(own):  # the innermost first
            with suppress(OSError):  # not empty: another process, or this one, has put a file there
                one.rmdir()


def _check_alike(path: Path, request: Request) -> None:
    """Refuse a folder with a Release of another regression, or with anything else."""
    try:
        earlier = load(path, Release.from_text).design
    except ReleaseError as error:
        raise RequestError(
            f"append: {error}; a series folder holds the Releases of its batches and no other "
            "JSON file"
        ) from None
    if earlier != request.design:
        raise RequestError(
            f"append: {path} has other columns, bounds, features or target; all batches of a "
            "series must be alike. Use another folder for another series"
        )


def _check_witness(
    folder: Path, series: str, here: list[ChargeRecord], published: list[ChargeRecord]
) -> None:
    """Refuse a name and a folder that speak of two series.

    Batches that were never declared disjoint may be here, too: their costs add up in any case.
    """
    others = sorted({one.charge.series for one in here if one.charge.series} - {series})
    if others:
        raise RequestError(
            f"series: {folder} holds Releases of series {others[0]!r}, not of {series!r}. Go on "
            f"with it by --series {others[0]}, or use another folder for another series; nothing "
            "was charged"
        )
    begun = any(one.charge.series == series for one in published)
    if begun and not any(one.charge.series == series for one in here):
        raise RequestError(
            f"series: the ledger knows a series {series!r}, and {folder} holds none of its "
            "Releases. If this is another series, give it another name. If it is the same, name "
            "its folder, or run the command of an earlier batch again, which writes the stored "
            "Release at no cost; nothing was charged"
        )


def _published(ledger: Ledger, dataset: str) -> dict[str, ChargeRecord]:
    """Return the data set's published charges by the digest of their Release's text."""
    return {
        record.release_sha256: record
        for record in ledger.charges(dataset)
        if record.release_sha256 is not None
    }


def _digest(path: Path) -> str:
    """SHA-256 of the text as the ledger keeps it, which is without a signature.

    Files may have the line ends of their system.
    """
    text = read_text(path).replace("\r\n", "\n")
    with suppress(ReleaseError):
        release = Release.from_text(text)
        if release.signature is not None:
            text = replace(release, signature=None).to_text()
    return hashlib.sha256(text.encode()).hexdigest()


# --- what a batch holds, in a form in which the same rows are recognised again --------------------

_LOW = (1 << 32) - 1


def content_of(plan: Any, result: Sums | FamilyCounts | BlockSums) -> dict[str, str]:
    """Texts about the rows, by what they are about. As private as the rows: never show them."""
    texts = {}
    for name, kind, values in _columns(plan, result):
        declared = plan.schema.restricted_to((name,)).to_identity()
        texts[_key(kind, declared)] = json.dumps([result.n, *values])
    if isinstance(plan, SumPlan) and isinstance(result, Sums):
        design = plan.design
        asked = [design.schema.to_identity(), design.regressed, geometry_to_dict(plan.geometry)]
        sums = result.values[SecondMoments.name]
        texts[_key("second moments", asked)] = json.dumps([result.n, *sums])
    if isinstance(plan, CountPlan) and isinstance(result, FamilyCounts):
        asked = [plan.schema.to_identity(), plan.network.to_json(), *(plan.families or ())]
        tables = {str(key): table.ravel().tolist() for key, table in result.tables.items()}
        texts[_key("families", asked)] = json.dumps([result.n, tables], sort_keys=True)
    return texts


def _key(kind: str, asked: Any) -> str:
    description = json.dumps([kind, asked], sort_keys=True)
    return hashlib.sha256(description.encode()).hexdigest()[:32]


def _columns(plan: Any, result: Any) -> Iterator[tuple[str, str, Sequence[int]]]:
    """A column's name, the kind of its numbers, and the numbers."""
    if isinstance(plan, CountPlan):
        for node in plan.sources:
            table = result.tables[node if plan.families is None else (node,)]
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
    # Of columns as they are. Terms are in the second moments, which are told apart below by them.
    plain = [name for name in design.regressed if name not in design.terms]
    for name in plain if alone else {design.target} & {*plain}:
        declared = plan.schema.columns[name]
        own = {c.level: sums[k] for k, c in enumerate(design.columns) if c.source == name}
        if plan.schema.unit_column is not None:
            yield name, "means", [total for pair in own.values() for total in pair]
        elif isinstance(declared, Category):
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
    return [exact_sum(totals[2 * k : 2 * k + 2]) for k in range(columns)]
