"""One Release for every level of a public column, in one pass, for the cost of one.

**Claim.** Let a unit be one row that is added or taken away, and let each level's Release be
(ε, δ)-DP for the rows of its level. Then all of them together are (ε, δ)-DP.

**Proof.** Let D and D' = D ∪ {r} be neighbours. The level of a row is a function of this row alone:
its own level, or the public fill value. So r is in one part k, the parts j ≠ k are the same sets of
rows in D and D', and their Releases have the same law. All parts are drawn independently, so for
any event the probability under D is that of part k, averaged over the others, which are
distributed alike: (ε, δ) of part k carries over. ∎

It needs what it says. Under ``replace_one`` the row may have another level afterwards: two parts
change, and the public number of rows of each with them, and the request is refused. So it is with
several rows, because a unit may then be in several parts. `tests/property/test_partition.py` adds,
takes away and replaces all rows of a small domain.

The ledger counts parts as batches of a series, whose declaration (nobody is in two of them) holds
here by construction, if all parts come from one reading of one table: somebody's level may have
changed in a later version of it. Therefore

- the series has a name that is derived from the request and cannot be given, so that any other
  request, a new label included, is another series, and is added;
- all parts are charged in one transaction before a row is read, and stored in one transaction: a
  run that was killed in between has published none of them, and the next one reads all rows anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.schema import Category, Schema
from noisewise.holder.engines import where_rows_are
from noisewise.holder.keys import SigningKey, signing_key, today
from noisewise.holder.ledger import Charge, Ledger
from noisewise.holder.publish import (
    Published,
    _opened,
    _write_atomically,
    check_columns,
    check_writable,
    still_pending,
    with_total,
)
from noisewise.holder.requests.base import key_of
from noisewise.holder.requests.regression import Request
from noisewise.holder.rows.sums import PartitionPlan
from noisewise.holder.series import made


@dataclass(frozen=True)
class Partition:
    """A request for every level of a column."""

    request: Request  # what is asked of each part; names neither a batch nor a series
    column: str  # a declared category that is neither a feature nor the target
    declared: Schema  # declares the column, and who is protected
    # What is read from a database: other rows are another request
    table: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.request, Request):
            raise RequestError("partition: it does not go with rounds; ask for rounds=1")
        schema, column = self.declared, self.declared.columns.get(self.column)
        if not isinstance(column, Category):
            raise RequestError(
                f"partition: {self.column!r} is not a declared category; its levels must be public"
            )
        if self.column in self.request.sources:
            raise RequestError(
                f"partition: {self.column!r} is in the regression too, and is the same in all rows "
                "of a part; leave it out of the features"
            )
        if schema.unit_column is not None:
            raise RequestError(
                "partition: one person's rows may have several levels, so that the person is in "
                "several parts; publish one release with the column as a feature"
            )
        if schema.neighbours != "add_remove_one" or schema.max_rows_per_unit != 1:
            raise RequestError(
                "partition: parts are disjoint for a unit of one row that is added or removed; a "
                "row that is replaced may change from one level to another, and several rows may "
                "be in several. Declare 'neighbours: add_remove_one' and 'max_rows_per_unit: 1' if "
                "that protects the people in the data (for a data set without charges under "
                "another unit), or publish one release with the column as a feature"
            )
        if self.request.batch is not None or self.request.series is not None:
            raise RequestError("partition: its series follows from it; leave batch and series out")

    @property
    def levels(self) -> tuple[str, ...]:
        column = self.declared.columns[self.column]
        assert isinstance(column, Category)
        return column.levels

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.request.sources, self.column)

    @cached_property
    def schema(self) -> Schema:
        return self.declared.restricted_to(self.sources)

    @cached_property
    def series(self) -> str:
        """The name of this partition, different for all that is different."""
        asked = [self.request.key, self.column, self.schema.to_identity(), self.table, self.query]
        return f"partition by {self.column[:100]}, {key_of(asked)[:32]}"

    @cached_property
    def parts(self) -> tuple[Request, ...]:
        """The request of every level, in order."""
        label = self.request.label
        return tuple(
            replace(
                self.request,
                label=f"{label} {self.column}={level}".strip(),
                batch=f"{number:03}",  # a level may be no usable name
                series=self.series,
            )
            for number, level in enumerate(self.levels, 1)
        )

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What the ledger is asked for, by level."""
        return tuple(part.charge(table=self.table, query=self.query) for part in self.parts)

    def files(self, folder: Path) -> tuple[Path, ...]:
        """Where the Releases go; a level's own name may be no file's, so its number comes first."""
        names = (re.sub(r"[^A-Za-z0-9._-]+", "_", level)[:60] for level in self.levels)
        return tuple(folder / f"{number:03}-{name}.json" for number, name in enumerate(names, 1))

    def plan(self) -> PartitionPlan:
        """Sum every level by itself, in one pass."""
        return PartitionPlan(self.request.plan(), self.column, self.schema)


def publish_partition(
    partition: Partition,
    data: Any,
    *,
    ledger: Ledger | str | Path,
    out: str | Path | None = None,
    engine: str = "auto",
    query_attested_by: str | None = None,
    purpose: str = "",
    sign: SigningKey | str | Path | None = None,
    same_data: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Published[Release]]:
    """Publish one Release for every level, as `publish` does: charge, then read, then store.

    Parameters
    ----------
    partition : Partition
    data, ledger, engine, query_attested_by, purpose, sign, same_data, progress
        As in `publish`.
    out : path, optional
        A folder for the Releases, which is made if need be.

    Returns
    -------
    dict of str to Published
        By level. Levels without rows have a Release, too: that nobody has a level is private.
    """
    parts, files = partition.parts, [] if out is None else partition.files(Path(out))
    parts[0].verify()
    for part in parts:
        part.check_size()
    signer = None if sign is None else signing_key(sign)
    date = today()
    with ExitStack() as stack:
        if out is not None:
            stack.enter_context(made(Path(out)))
        for path in files:
            check_writable(path)
        plan, read = partition.plan(), {"table": partition.table, "query": partition.query}
        source = check_columns(
            plan, data, engine=engine, query_attested_by=query_attested_by, **read
        )
        budget = stack.enter_context(_opened(ledger))
        reservations = budget.reserve_all(
            partition.charges,
            purpose=purpose,
            attested_by=query_attested_by or "",
            source=where_rows_are(data, **read),
            same_data=same_data,
        )
        texts = [one.published for one in reservations if one.published is not None]
        repeated = bool(texts)  # the ledger insists on all or none
        if not repeated:
            with still_pending(reservations[0].charge.epsilon):
                sums = source.sums(plan, with_total(source, progress))
            drawn = [part.release(s.n, s).to_text() for part, s in zip(parts, sums, strict=True)]
            texts = budget.commit_all(
                [(r, text, None) for r, text in zip(reservations, drawn, strict=True)]
            )
        releases = [Release.from_text(text) for text in texts]
        if signer is not None:
            releases = [signer.sign(release, date) for release in releases]
            texts = [release.to_text() for release in releases]
        for path, text in zip(files, texts, strict=False):
            _write_atomically(path, text)
    return {
        level: Published(release, repeated)
        for level, release in zip(partition.levels, releases, strict=True)
    }
