"""Where the holder's noise is real and where it has a seed; what comes first; no clocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .seeded_noise import seeded_noise

# On a busy machine a sound test may be slow.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")

# This room is about the noise itself. Its thresholds come from the noise's law, and the chance of a
# false alarm is stated there. All others check what is made of a Release. With new noise in every
# run some would fail now and then, however sound: no interval holds its truth always, and no audit
# sees a fault always. Audits of real noise: `python -m studies audit` and tests/statistical.
REAL_NOISE = frozenset({"statistical"})


# Two workers begin with these. Both compile for long on a fresh machine, and not the same code.
FIRST = ("test_exact.py", "test_gibbs_posterior.py")


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="run the tests marked `long`, and only those: laws checked by many repetitions",
    )


def pytest_collection_modifyitems(config, items):
    """Long tests are a run of their own. Files with slow ones come first, so that no worker starts
    a slow one when others are done.
    """
    wanted = config.getoption("--long")
    items[:] = [item for item in items if bool(item.get_closest_marker("long")) == wanted]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    place = {name: number for number, name in enumerate(FIRST, -len(FIRST))}
    items.sort(key=lambda item: place.get(item.path.name, item.path not in slow))


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--long"):
        terminalreporter.write_line(
            "Not run here: tests marked `long`. `make test-long` runs them."
        )


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory):
    """The list of temporary files is a file of the user's; tests have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", autouse=True)
def holders_noise(request):
    """Noise with a seed, but in rooms and files (by a fixture of this name) that want it real."""
    place = request.path.relative_to(Path(__file__).parent)
    if place.parts[0] in REAL_NOISE:
        yield
    else:
        with seeded_noise(place.name):
            yield
