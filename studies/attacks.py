"""Attacks at random points: kills, races, damage, forgery, neighbours.

Kills and races run the real command in processes of their own. They are forked from one that has
imported everything and opened nothing, so that a kill falls into the work and not into the imports.
Each attack states what must hold whatever happens; a try where it doesn't is counted as a break.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from noisewise.analyst.fit import fit
from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.report import render
from noisewise.cli.main import app
from noisewise.core.composition import satisfies
from noisewise.core.document import digest_of
from noisewise.core.errors import LedgerError, NoisewiseError, ReleaseError
from noisewise.core.kinds import release_from_text
from noisewise.core.privacy import Claim, ComposedEvent, Event
from noisewise.core.schema import Category, Column, Number, Schema
from noisewise.core.temporary import leftovers, remove_leftover
from noisewise.core.yaml_files import schema_text
from noisewise.holder.ledger import ChargeRecord, Ledger
from noisewise.holder.mechanisms import randomness
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import Request, exact_values, make_request
from noisewise.holder.requests.summary import make_summary_request
from studies.mended import files

COLUMNS: dict[str, Column] = {
    "age": Number(18, 90),
    "region": Category(("north", "south", "east"), "north"),
    "smoker": Category(("no", "yes"), "no"),
    "income": Number(0, 200_000),
}
SCHEMA = Schema("people", COLUMNS, "add_remove_one")
ROWS = 300
PEOPLE = {
    "age": [18.0 + 7 * i % 73 for i in range(ROWS)],
    "region": [("north", "south", "east")[i % 3] for i in range(ROWS)],
    "smoker": [("no", "yes")[i // 5 % 2] for i in range(ROWS)],
    "income": [1000.0 * (11 * i % 200) for i in range(ROWS)],
}
LEFTOVERS = "*noisewise-*"
LONGEST = 20.0  # seconds of the processor for a small file of posterior draws and a report on it
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, "", "x", "9" * 5000, "\x1b[2J", "<script>"),
    *([], {}, [[]], [None], {"a": 1}, math.nan, math.inf),
]


@dataclass
class Outcome:
    """What an attack tried, and what came of it."""

    attack: str
    tries: int = 0
    breaks: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def check(self, holds: bool, what: str) -> None:
        """Count a break of what must hold."""
        if not holds:
            self.breaks.append(f"try {self.tries}: {what}")


# --- processes ------------------------------------------------------------------------------------


def _fork(words: Sequence[str], report: int | None = None, go: int | None = None) -> int:
    """Run `noisewise` in a child; `report` gets a byte after each step of the ledger."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if report is not None:
            for name, step in (("reserve_all", b"r"), ("commit_all", b"c")):
                setattr(Ledger, name, _reporting(getattr(Ledger, name), report, step))
        if go is not None:
            os.read(go, 1)
        app(list(words), standalone_mode=False)
        code = 0
    except NoisewiseError as error:
        code = error.exit_code
    finally:
        os._exit(code)


def _reporting(method: Callable[..., Any], report: int, step: bytes) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        result = method(*given, **named)
        os.write(report, step)
        return result

    return call


def _end(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _folder(base: Path, cap: str) -> Path:
    """A holder: rows, a schema and a ledger with a cap."""
    folder = Path(tempfile.mkdtemp(dir=base))
    lines = [
        ",".join(PEOPLE),
        *(",".join(map(str, row)) for row in zip(*PEOPLE.values(), strict=True)),
    ]
    (folder / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "schema.yaml").write_text(schema_text(SCHEMA), encoding="utf-8")
    with Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", cap)
    return folder


def _command(folder: Path, label: str, *more: str, out: str = "release.json") -> list[str]:
    words = {"data": "people.csv", "schema": "schema.yaml", "ledger": "budget.db", "out": out}
    paths = [word for key, name in words.items() for word in (f"--{key}", str(folder / name))]
    asked = ["--target", "income", "--features", "age", "--epsilon", "1", "--label", label]
    return ["release", *paths, *asked, *more]


def _records(folder: Path, label: str) -> list[ChargeRecord]:
    """The charges of a request that count, from a ledger that is read whole and checked."""
    with Ledger(folder / "budget.db", create=False) as ledger:
        ledger.published()  # every stored text against its digest
        charges = ledger.accounts()[0].charges
    mine = [one for one in charges if f"label {label}" in one.charge.summary]
    return [one for one in mine if one.counts]


def _digests(paths: Sequence[Path]) -> set[str]:
    """Of Releases that are whole; what is no Release raises."""
    texts = [path.read_text("utf-8") for path in paths]
    for text in texts:
        release_from_text(text)
    return {sha256(text.encode()).hexdigest() for text in texts}


# --- attacks --------------------------------------------------------------------------------------


def kills(tries: int, rng: random.Random, base: Path) -> Outcome:
    """`release` is killed at a random moment, up to twice, and then run to its end.

    No file without a charge; no charge or Release lost that the ledger had acknowledged; the same
    request completes at no further cost; what was stored is never drawn again; nothing is left but
    what `noisewise clean` names, and it removes that.
    """
    found = Outcome("kill -9 of `noisewise release`")
    folder, longest = _folder(base, "1000000"), 0.0
    for warm in ("<first>", "<second>"):
        started = time.perf_counter()
        found.check(_end(_fork(_command(folder, warm))) == 0, "it fails without an attack")
        longest = 1.2 * (time.perf_counter() - started)
    for number in range(tries):
        if number % 50 == 49:
            shutil.rmtree(folder)
            folder = _folder(base, "1000000")
        found.tries += 1
        parts = number % 4 == 3  # by level: three Releases, all or none
        label, stored = f"<{number}>", set[str]()
        more, out = (["--partition", "region"], "parts") if parts else ([], f"{number}.json")
        words = _command(folder, label, *more, out=out)
        for _ in range(rng.randint(1, 2)):
            reading, writing = os.pipe()
            pid = _fork(words, writing)
            os.close(writing)
            time.sleep(rng.uniform(0, longest))
            os.kill(pid, signal.SIGKILL)
            ended = _end(pid)
            with os.fdopen(reading, "rb") as pipe:
                steps = pipe.read()
            records = _records(folder, label)
            published = {one.release_sha256 for one in records if one.status == "published"}
            paths = list((folder / out).glob("*.json")) if parts else [folder / out]
            files = _digests([path for path in paths if path.exists()])
            expected = 3 if parts else 1
            found.check(len(records) in (0, expected), "part of the charges")
            found.check(len(published) in (0, expected), "part of the Releases")
            found.check(b"r" not in steps or bool(records), "a charge was lost")
            found.check(b"c" not in steps or bool(published), "a Release was lost")
            found.check(files <= published, "a file without a charge")
            found.check(stored <= published, "a stored Release was replaced")
            stored |= {one for one in published if one}
            at = "not killed" if ended == 0 else "before the charge"
            if ended != 0 and records:
                at = "after the Release was stored" if published else "between charge and Release"
            found.ends[at] += 1
        started = time.perf_counter()
        found.check(_end(_fork(words)) == 0, "the same request did not complete")
        if not parts and not stored:  # so that moments go from the start to the end of a run
            longest = 0.95 * longest + 0.05 * 1.2 * (time.perf_counter() - started)
        records = _records(folder, label)
        files = _digests(list((folder / out).glob("*.json")) if parts else [folder / out])
        found.check(len(records) == expected, "it was charged again")
        found.check(files == {one.release_sha256 for one in records}, "files and ledger differ")
        found.check(stored <= files, "a stored Release was drawn again")
        left = {str(path) for path in folder.resolve().rglob(LEFTOVERS)}
        named = [one for one in leftovers() if one.made.path in left and not one.stays]
        found.check(left == {one.made.path for one in named}, "an unknown temporary file is left")
        found.ends["left behind, and cleaned"] += len(named)
        for leftover in named:
            remove_leftover(leftover)
        found.check(not list(folder.rglob(LEFTOVERS)), "what is left can't be removed")
        if parts:
            shutil.rmtree(folder / out)
    return found


def races(tries: int, rng: random.Random, base: Path) -> Outcome:
    """Three processes for the last budget, or for the same request, at once.

    One gets the budget and the others are refused; one Release is drawn and all get this one.
    """
    found = Outcome("three processes at once")
    for number in range(tries):
        found.tries += 1
        folder, same = _folder(base, "1"), bool(number % 2)
        reading, writing = os.pipe()
        labels = ["<one>" if same else f"<{i}>" for i in range(3)]
        pids = [
            _fork(_command(folder, label, out=f"{i}.json"), go=reading)
            for i, label in enumerate(labels)
        ]
        os.close(reading)
        time.sleep(rng.uniform(0, 0.01))
        os.write(writing, b"123")
        codes = sorted(map(_end, pids))
        os.close(writing)
        published = [one for label in sorted(set(labels)) for one in _records(folder, label)]
        files = _digests(list(folder.glob("*.json")))
        found.check(codes == ([0, 0, 0] if same else [0, 5, 5]), f"exit codes {codes}")
        found.check(len(published) == 1 and len(files) == 1, "not exactly one Release")
        found.check(files == {one.release_sha256 for one in published}, "file and ledger differ")
        found.ends["same request" if same else "last budget"] += 1
        shutil.rmtree(folder)
    return found


def damaged_ledgers(tries: int, rng: random.Random, base: Path) -> Outcome:
    """Flipped bits, truncation, zeroes, a foreign journal.

    The ledger is refused, or says the same as before; never less, never another error.
    """
    found = Outcome("damaged ledger")
    folder = _folder(base, "100")
    for label in ("a", "b", "c"):
        if _end(_fork(_command(folder, label))):
            raise RuntimeError("the command fails without an attack")
    path, journal = folder / "budget.db", folder / "budget.db-journal"
    whole = path.read_bytes()

    def content() -> Any:
        with Ledger(path, create=False) as ledger:
            return [one.to_json() for one in ledger.accounts()], ledger.published()

    before = content()
    for _ in range(tries):
        found.tries += 1
        data, kind = bytearray(whole), rng.choice(["flip", "flips", "cut", "zeroes", "journal"])
        if kind in ("flip", "flips"):
            for _ in range(1 if kind == "flip" else 20):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del data[rng.randrange(len(data)) :]
        elif kind == "zeroes":
            start = rng.randrange(len(data))
            size = min(rng.choice([1, 16, 512, 4096]), len(data) - start)
            data[start : start + size] = bytes(size)
        else:
            journal.write_bytes(rng.randbytes(rng.choice([1, 28, 512, 5000])))
        path.write_bytes(data)
        try:
            found.check(content() == before, f"{kind}: read with another content")
            found.ends[f"{kind}: same content"] += 1
        except LedgerError:
            found.ends[f"{kind}: refused"] += 1
        journal.unlink(missing_ok=True)
    return found


def forgeries(tries: int, rng: random.Random, base: Path) -> Outcome:
    """One to three fields of a Release are edited, and the digest is computed anew.

    It is refused, or promises no more than follows from the genuine noise, about no larger unit,
    and with no less noise. (Values, and more noise than there is, can be made up: no signature.)
    """
    found = Outcome("forged Release")
    genuine = [json.loads(text) for text in _texts(base / "forgeries.db")]
    for _ in range(tries):
        found.tries += 1
        original = rng.choice(genuine)
        forged = copy.deepcopy(original)
        for _ in range(rng.choice([1, 1, 2, 3])):
            _edit(forged, rng)
        forged["digest"] = digest_of({k: v for k, v in forged.items() if k != "digest"})
        try:
            text = json.dumps(forged)
            release = release_from_text(text)
        except ReleaseError:
            found.ends["refused"] += 1
            continue
        found.ends["no stronger"] += 1
        was = release_from_text(json.dumps(original))
        found.check(not _stronger(release.claim, was.event), f"a stronger claim: {text[:2000]}")
        rows = release.schema.max_rows_per_unit
        found.check(rows <= was.schema.max_rows_per_unit, f"a larger unit: {text[:2000]}")
        found.check(not _quieter(forged, original), f"less noise: {text[:2000]}")
    return found


def damaged_posteriors(tries: int, rng: random.Random, base: Path) -> Outcome:
    """Flipped bits, with or without checksums that fit, cuts, zeroes, other words, other arrays.

    The file is refused, or it is read, shown and put into a report. There is no other error, no
    text that steers a terminal, and no wait.
    """
    found = Outcome("damaged posterior file")
    genuine = [(path.read_bytes(), files.checked_blocks(path)) for path in _posteriors(base)]
    path = base / "damaged.nc"
    for _ in range(tries):
        found.tries += 1
        content, blocks = rng.choice(genuine)
        kind = rng.choice(["flips", "flips that fit", "cut", "zeroes", "words", "array"])
        _damage(kind, path, content, blocks, rng)
        started, end = time.process_time(), "read"
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                posterior = load_posterior(path)
                lines = str(posterior).splitlines()
                found.check(all(map(str.isprintable, lines)), f"{kind}: a text that can't be shown")
                if rng.random() < 0.2:
                    found.check("<script>" not in render(posterior), f"{kind}: a script")
        except NoisewiseError as error:
            end = "refused"
            found.check(len(str(error)) < 1000, f"{kind}: a long error")
        except Exception as error:
            found.check(False, f"{kind}: {error!r:.300}")
        found.check(time.process_time() - started < LONGEST, f"{kind}: a wait")
        found.ends[f"{kind}: {end}"] += 1
    return found


def neighbours(tries: int, rng: random.Random, base: Path) -> Outcome:
    """Rows of one unit are replaced or added, and all sums are taken by the real accumulators.

    Their distance never exceeds the sensitivity that the noise was made for.
    """
    found = Outcome("neighbours against sensitivities")
    requests, worst = list(_requests()), 0.0
    for number in range(tries):
        found.tries += 1
        request = requests[number % len(requests)]
        schema, common = request.schema, [_row(request, rng) for _ in range(rng.randint(0, 3))]
        unit = schema.max_rows_per_unit
        one, other = ([_row(request, rng)] * unit for _ in range(2))
        if not schema.n_is_public:
            other = []  # the unit is absent
        pair = [_sums(request, common + rows) for rows in (one, other)]
        for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
            exact = [exact_values(statistic, sums) for sums in pair]
            moved = [abs(a - b) for a, b in zip(*exact, strict=True)]
            if mechanism.family == "discrete_laplace":
                size = float(sum(moved))
            else:
                twice = mechanism.off_diagonal_scale != mechanism.scale  # √2-fold, squared
                factors = [1 + (twice and len(set(e)) > 1) for e in statistic.entries]
                size = math.sqrt(sum(f * m * m for f, m in zip(factors, moved, strict=True)))
            ratio = size / mechanism.sensitivity
            worst = max(worst, ratio)
            found.check(ratio <= 1 + 1e-12, f"{statistic.name}: {ratio:.6f} of the sensitivity")
    found.ends[f"{len(requests)} requests, largest ratio {worst:.4f}"] = tries
    return found


ATTACKS: dict[str, tuple[Callable[[int, random.Random, Path], Outcome], int, int]] = {
    "kills": (kills, 1000, 8),
    "races": (races, 1000, 6),
    "ledgers": (damaged_ledgers, 5000, 60),
    "forgeries": (forgeries, 10_000, 150),
    "posteriors": (damaged_posteriors, 10_000, 150),
    "neighbours": (neighbours, 50_000, 400),
}  # with the number of tries, and of a quick run


def campaign(counts: dict[str, int], seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Run the attacks; times, rows and edits are random, and the noise is new every time."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    randomness.laplace_measurement(1.0)  # loads OpenDP before any process is forked
    for name, count in counts.items():
        if not count:
            continue
        with tempfile.TemporaryDirectory(prefix="attacks-") as base:
            started = time.perf_counter()
            with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(Path(base) / "state")}):
                found = ATTACKS[name][0](count, random.Random(f"{seed} {name}"), Path(base))
        seconds = round(time.perf_counter() - started)
        yield {
            "attack": found.attack,
            "tries": found.tries,
            "breaks": found.breaks,
            "ends": dict(found.ends),
            "seed": seed,
            "seconds": seconds,
        }


# --- what is attacked -----------------------------------------------------------------------------


def _requests() -> Iterator[Request]:
    """Regressions of all kinds of noise, geometry, neighbours and units."""
    for relation in ("replace_one", "add_remove_one"):
        for unit in (1, 3):
            schema = Schema("people", COLUMNS, relation, unit)
            for words in (
                {"epsilon": 1},
                {"epsilon": 1, "delta": "1e-6", "rounds": 1},
                {"epsilon": 1, "delta": "1e-6", "radius": 0.8},
                {"rho": "0.5", "fourth_moments": "0.2", "smallest_eigenvalue": "0.1"},
                {"epsilon": 2, "fourth_moments": "0.3", "smallest_eigenvalue": "0.2"},
            ):
                for features in (["age"], ["age", "region"], ["age", "region", "smoker"]):
                    yield make_request(schema, target="income", features=features, **words)


def _row(request: Request, rng: random.Random) -> list[float]:
    """Mostly corners of the domain; outside of it, too."""
    row = []
    for name in request.sources:
        column = request.schema.columns[name]
        if isinstance(column, Category):
            row.append(float(rng.randrange(len(column.levels))))
        else:
            assert isinstance(column, Number)
            middle = (column.lower + column.upper) / 2
            ends = [column.lower, column.upper, middle, -1e9, 1e9]
            row.append(rng.choice([*ends, *ends, rng.uniform(column.lower, column.upper)]))
    return row


def _sums(request: Request, rows: Sequence[Sequence[float]]) -> Any:
    accumulator = request.plan().accumulator()
    for row in rows:
        kinds = [request.schema.columns[name] for name in request.sources]
        accumulator.add(
            [
                np.array([value], dtype=np.int32 if isinstance(kind, Category) else float)
                for kind, value in zip(kinds, row, strict=True)
            ]
        )
    return accumulator.result()


def _texts(path: Path) -> list[str]:
    """Genuine Releases of every kind, from rows."""
    requests: list[Any] = list(_requests())[::4]
    for unit in (1, 2):
        schema = Schema("people", COLUMNS, "replace_one", unit)
        words: dict[str, Any] = {"target": "income", "features": ["age"], "epsilon": 1}
        requests.append(make_summary_request(schema, questions=["age < 0"], blocks=30, **words))
        table = schema.restricted_to(("region", "smoker"))
        for mechanism in ("laplace", "fourier", "posterior_sample"):
            requests.append(
                make_network_request(
                    table, network={"smoker": ["region"]}, mechanism=mechanism, epsilon=1
                )
            )
    texts = []
    for number, request in enumerate(requests):
        # Losses under different units cannot be added up: a ledger each.
        own = path.with_name(f"{number}-{path.name}")
        with Ledger(own) as ledger:
            ledger.set_cap("people", 100, "1e-5")
            texts.append(publish(request, PEOPLE, ledger=ledger).release.to_text())
    return texts


def _posteriors(base: Path) -> list[Path]:
    """Files of a regression, of a network and of block summaries."""
    paths = [files.genuine(base / "regression.nc")]
    for number, text in enumerate(_texts(base / "posteriors.db")):
        release = release_from_text(text)
        if not hasattr(release, "measurements"):  # a regression would be simulated for long
            paths.append(base / f"{number}.nc")
            fit(release).save(paths[-1])
    return paths


def _damage(
    kind: str, path: Path, content: bytes, blocks: Sequence[slice], rng: random.Random
) -> None:
    """Write a file with one accident, or one change by somebody who knows the format."""
    data, block = bytearray(content), rng.choice(blocks)
    if kind in ("flips", "flips that fit"):
        for _ in range(rng.choice([1, 1, 2, 8])):
            inside = block if kind == "flips that fit" else slice(0, len(data))
            at = rng.randrange(inside.start, inside.stop)
            data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)])
    elif kind == "cut":
        del data[rng.randrange(len(data)) :]
    elif kind == "zeroes":
        start, size = rng.randrange(len(data)), rng.choice([1, 16, 512, 4096])
        data[start : start + size] = bytes(len(data[start : start + size]))
    path.write_bytes(files.with_checksums(bytes(data), [block] * (kind == "flips that fit")))
    if kind == "words":
        whole = files.document(path)
        _change(whole, rng)
        files.mark(path, json.dumps(whole))
    elif kind == "array":
        with files.opened(path) as file:
            names: list[str] = []
            file.visititems(
                lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
            )
            name = rng.choice(names)
            values = file[name][...]
            del file[name]
            if rng.random() < 0.9:
                odd = rng.choice([math.nan, math.inf, -math.inf, 0.0, 1e300, -1.0])
                other = [np.full(values.shape, odd), values[:0], values[..., None], values[..., :1]]
                file[name] = rng.choice(other) if values.dtype.kind in "if" else values[:1]


def _change(document: dict[str, Any], rng: random.Random) -> None:
    """Remove, rename, repeat or replace a value somewhere."""
    place = rng.choice(list(_places(document)))
    parent, key = _at(document, place[:-1]), place[-1]
    if rng.random() < 0.2:
        del parent[key]
    elif rng.random() < 0.2 and isinstance(parent, dict):
        parent[f"{key}{rng.choice(['', ' ', 'x'])}"] = parent.pop(key)
    elif rng.random() < 0.2 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[key]))
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD))


def _edit(document: dict[str, Any], rng: random.Random) -> None:
    """Change one value, most of them to one of the same type that still makes sense."""
    places = [p for p in _places(document) if p[0] != "digest"]
    values = [p for p in places if "values" not in p]
    path = rng.choice(values if rng.random() < 0.9 and values else places)
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    key, value = path[-1], parent[path[-1]]
    if rng.random() < 0.05:
        parent[key] = rng.choice([None, True, 0, -1, "", [], {}, 10**30, 1e300])
    elif isinstance(value, bool | None):
        parent[key] = rng.choice([None, 1, 7])
    elif isinstance(value, int | float):
        changed = rng.choice([value + 1, value - 1, value * 2, value * 10**6, value // 2, 1, 0])
        parent[key] = changed
    elif isinstance(value, str):
        parent[key] = _other_text(value, rng)
    elif isinstance(value, list) and value and rng.random() < 0.5:
        value.append(copy.deepcopy(rng.choice(value))) if rng.random() < 0.5 else value.pop()


def _other_text(value: str, rng: random.Random) -> str:
    try:
        amount = Fraction(value)
    except (ValueError, ZeroDivisionError):
        known = ["replace_one", "add_remove_one", "laplace", "gaussian", "box", "upper", "x"]
        return rng.choice([*known, "isometric", "discrete_laplace", "discrete_gaussian", "pure"])
    return str(float(rng.choice([amount / 2, amount * 2, amount / 1000, amount * 1000, amount])))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _places(item, (*path, key))


def _stronger(claim: Claim, genuine: Event) -> bool:
    """Whether a claim promises more than follows from what was really done."""
    events = genuine.events if isinstance(genuine, ComposedEvent) else (genuine,)
    return not satisfies(events, claim)


def _quieter(document: Any, genuine: Any) -> bool:
    """Whether any number says that there is less noise; less tempered draws have less."""
    for path in _places(genuine):
        less = {"scale": 1, "off_diagonal_scale": 1, "temper": -1}.get(path[-1])
        if less is None or path[0] == "schema":
            continue
        now, was = (Fraction(_at(one, path)) for one in (document, genuine))
        if less * now < less * was:
            return True
    return False


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document
