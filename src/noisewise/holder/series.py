"""A stream of batches: one Release a batch, in one folder, and the rows may be erased.

To an analyst the folder is as many holders. To the budget, batches add up like any releases,
unless the holder declares that nobody is in two of them (`Charge.batch`).
"""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import ReleaseError, RequestError
from ..core.release import load_release
from .request import Request


def batch_path(folder: Path, batch: str, request: Request) -> Path:
    """Where the batch's Release goes, after checking that it belongs to the series.

    Every Release of a series declares the same columns, features and target; otherwise the
    analyst could not put them together. Nothing is read but Releases, and nothing is charged.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", batch):
        raise RequestError(
            f"batch: {batch!r} names a file; use letters, digits, dots, dashes and underscores, "
            "such as 2026-09"
        )
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"append: {folder} is not a folder")
    for path in sorted(folder.glob("*.json")):
        try:
            earlier = load_release(path).design
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
    return folder / f"{batch}.json"
