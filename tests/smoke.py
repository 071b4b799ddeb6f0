"""Install what `make dist` built into a new environment outside the tree, and use it once.

    python tests/smoke.py dist

The wheel with what locks/holder.txt names, then the sdist in its place: from a table to numbers, by
commands. Beside them go a bill of materials of that environment (CycloneDX) and checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ROWS = "age,region,income\n" + "".join(
    f"{20 + i % 60},{('north', 'south')[i % 2]},{30_000 + 500 * (i % 60) + 37 * i}\n"
    for i in range(500)
)
CODEBOOK = """\
name,min,max,levels,label,unit_of_measure
age,18,90,,Age,years
region,,,north|south,Region,
income,0,200000,,Income,euros
"""
COMMANDS = """\
--version
schema new people.csv --codebook codebook.csv --out schema.yaml
schema check schema.yaml --data people.csv
ledger cap --ledger budget.db --dataset people --epsilon 3
release --data people.csv --schema schema.yaml --target income --features age,region --epsilon 3 \
--ledger budget.db --out release.json
fit release.json --seed 1 --chains 2 --draws 100 --out post.nc
show post.nc
report post.nc --out report.html
export release.json --to stan --out model.stan
"""


def main(dist: Path) -> None:
    """Fail with the first command that fails."""
    dist = dist.resolve()
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="noisewise-smoke-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        bin_folder = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        # Nothing of the tree, and nothing of whoever runs this, may help.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        pip = [bin_folder / "python", "-m", "pip"]
        locked = ["install", "--quiet", "--require-hashes", "-r", ROOT / "locks/holder.txt"]
        subprocess.run([*pip, *locked], check=True, env=env, cwd=folder)
        for package, more in ((wheel, []), (sdist, ["--force-reinstall"])):
            alone = ["install", "--quiet", "--no-deps", *more, package]
            subprocess.run([*pip, *alone], check=True, env=env, cwd=folder)
            subprocess.run([*pip, "check"], check=True, env=env, cwd=folder)
            work = folder / package.suffix[1:]
            work.mkdir()
            (work / "people.csv").write_text(ROWS)
            (work / "codebook.csv").write_text(CODEBOOK)
            for line in COMMANDS.splitlines():
                command = [bin_folder / "noisewise", *line.split()]
                subprocess.run(command, check=True, env=env, cwd=work, stdout=subprocess.DEVNULL)
            assert "Age" in (work / "report.html").read_text("utf-8")
            print(f"{package.name}: installs, publishes, fits and shows")
            if package is wheel:
                bill = dist / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
                write_bill(bill, bin_folder / "python", wheel)
        sums = [f"{sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
        (dist / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


def sha256(path: Path) -> str:
    """What `sha256sum` says."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_bill(path: Path, python: Path, wheel: Path) -> None:
    """Write what is installed beside the wheel, its licences, and what needs what."""
    made = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    subprocess.run([*made, "--output-file", path, python], check=True, cwd=ROOT)
    bill = json.loads(path.read_text("utf-8"))
    # The wheel is what the bill is about, not one component among others.
    [whole] = [each for each in bill["components"] if each["name"] == "noisewise"]
    bill["components"] = [each for each in bill["components"] if each is not whole]
    # Where it lay on this machine is nobody's business.
    whole["externalReferences"] = [
        each for each in whole.get("externalReferences", []) if not each["url"].startswith("file:")
    ]
    whole["hashes"] = [{"alg": "SHA-256", "content": sha256(wheel)}]
    bill["metadata"]["component"] = whole
    path.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(bill['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
