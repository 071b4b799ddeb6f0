"""What is installed is what was tested: lock files, images, continuous integration."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from noisewise.holder.mechanisms import randomness
from tests import smoke

from .doc_pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCKS = {"tested": ["dev"], "holder": [], "node": ["federation"]}  # and the extras of each
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}")
# Systems and versions for which a lock must name everything.
PLACES = [
    {"python_version": version, "python_full_version": f"{version}.{patch}", "sys_platform": system,
     "platform_system": name, "os_name": "nt" if system == "win32" else "posix",
     "platform_machine": machine, "implementation_name": "cpython"}
    for version, patch in (("3.11", 5), ("3.12", 0), ("3.13", 0))
    for system, name, machine in (
        ("linux", "Linux", "x86_64"), ("darwin", "Darwin", "arm64"), ("win32", "Windows", "AMD64")
    )
]  # fmt: skip


def entries(text):
    """Requirements of a lock, each with its number of hashes; anything else is an error."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = []
    while lines:
        requirement, *rest = lines
        hashes = 0
        while requirement.endswith(" \\"):
            requirement, (line, *rest) = requirement.removesuffix(" \\"), rest
            assert HASH.fullmatch(line.removesuffix(" \\")), line
            hashes += 1
            requirement += " \\" if line.endswith(" \\") else ""
        found.append((Requirement(requirement), hashes))
        lines = rest
    return found


def read(name):
    return entries((ROOT / "locks" / f"{name}.txt").read_text("ascii"))


def versions(lock, place):
    """The version of each package at one place."""
    found = {}
    for requirement, _ in lock:
        if requirement.marker is None or requirement.marker.evaluate(place):
            name = canonicalize_name(requirement.name)
            assert name not in found, name
            [exact] = requirement.specifier
            assert exact.operator == "=="
            found[name] = exact.version
    return found


def asked(extras):
    """What pyproject asks for, the extras of extras included."""
    waiting = [Requirement(each) for each in PROJECT["dependencies"]]
    extras, seen = list(extras), set()
    while extras:
        extra = extras.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if each.name == "noisewise":
                extras += each.extras
            else:
                waiting.append(each)
    return waiting


def places():
    return [{**default_environment(), **place} for place in PLACES]


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_hashes_and_no_addresses(name):
    text = (ROOT / "locks" / f"{name}.txt").read_text("ascii")
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash=)", text, flags=re.M)  # no option but hashes
    for requirement, hashes in entries(text):
        assert hashes, requirement
        assert requirement.url is None
        assert not requirement.extras


def test_the_check_of_locks_would_notice():
    """Negative control: lines that pip would take, or that are broken."""
    good = f"a==1 \\\n    --hash=sha256:{'0' * 64}"
    assert entries(good)[0][1] == 1
    assert entries("a==1")[0][1] == 0
    for bad in ("--index-url https://example.org", good[:-1], "a==1 \\\n    --hash=md5:0", "-e ."):
        with pytest.raises((AssertionError, ValueError)):
            entries(bad)


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_what_the_project_asks_for(name):
    lock = read(name)
    for place in places():
        locked = versions(lock, place)
        for requirement in asked(LOCKS[name]):
            if requirement.marker is None or requirement.marker.evaluate(place):
                version = locked.get(canonicalize_name(requirement.name))
                assert version is not None, requirement
                assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize("name", ["holder", "node"])
def test_what_is_shipped_is_what_was_tested(name):
    for place in places():
        assert versions(read(name), place).items() <= versions(read("tested"), place).items()


def test_the_noise_is_that_of_a_tested_version():
    for place in places():
        assert versions(read("holder"), place)["opendp"] in randomness.TESTED


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.Dockerfile")))
def test_images_are_made_of_what_is_named_by_hash(path):
    text = path.read_text("utf-8")
    bases = re.findall(r"^FROM (\S+)", text, flags=re.M)
    assert bases
    assert all(re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base) for base in bases)
    for installs in re.findall(r"pip install [^&]*", text):
        assert "--require-hashes" in installs or "--no-deps --no-index" in installs
    [lock] = re.findall(r"COPY locks/(\w+)\.txt", text)
    assert lock in LOCKS


def test_continuous_integration_runs_actions_that_nobody_can_move():
    flow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    used = [
        step["uses"] for job in flow["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used)


def test_make_installs_nothing_without_a_hash():
    text = (ROOT / "Makefile").read_text("utf-8")
    installs = re.findall(r"pip install .*", text)
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-deps --no-build-isolation" in line
    assert "build --no-isolation" in text


def test_the_bill_of_materials_is_about_the_wheel(tmp_path):
    if importlib.util.find_spec("cyclonedx_py") is None:
        pytest.skip("cyclonedx-bom is not installed; `make dist` needs it, too")
    wheel = tmp_path / "noisewise.whl"
    wheel.write_bytes(b"a wheel")
    smoke.write_bill(tmp_path / "bill.json", Path(sys.executable), wheel)
    bill = json.loads((tmp_path / "bill.json").read_text("utf-8"))
    whole, components = bill["metadata"]["component"], bill["components"]
    assert (bill["bomFormat"], whole["name"]) == ("CycloneDX", "noisewise")
    assert whole["hashes"] == [{"alg": "SHA-256", "content": smoke.sha256(wheel)}]
    names = {component["name"] for component in components}
    assert {"numpy", "opendp", "h5netcdf"} <= names
    assert "noisewise" not in names
    assert "file:" not in json.dumps(bill)
    assert all(component["version"] for component in components)
    [needs] = [
        each["dependsOn"] for each in bill["dependencies"] if each["ref"] == whole["bom-ref"]
    ]
    assert len(needs) >= len(PROJECT["dependencies"])
