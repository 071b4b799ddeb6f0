"""Chains in threads: results in order, progress that adds up, and no work after a failure."""

from __future__ import annotations

import threading

import pytest

from noisewise.analyst.chains import StoppedError, check_counts, run_chains
from noisewise.core.errors import RequestError


def test_results_are_in_the_order_of_the_chains():
    first_may_end = threading.Event()

    def run(chain, _report):
        if chain == 0:
            assert first_may_end.wait(10)
        first_may_end.set()
        return chain

    assert run_chains(run, chains=3, length=1, cores=2) == [0, 1, 2]


def test_progress_adds_up_over_chains_and_never_goes_back():
    seen = []

    def run(_chain, report):
        for done in (3, 6, 7):
            report(done)

    run_chains(run, chains=4, length=7, cores=2, progress=lambda *told: seen.append(told))
    assert seen == sorted(seen)
    assert len(seen) == 12
    assert seen[-1] == (28, 28)


def test_after_a_failure_chains_stop_at_their_next_report_and_no_other_starts():
    started, stopped = [], []

    def run(chain, report):
        started.append(chain)
        if chain == 0:
            raise ZeroDivisionError
        try:
            while True:
                report(1)
        except StoppedError:
            stopped.append(chain)
            raise

    with pytest.raises(ZeroDivisionError):
        run_chains(run, chains=50, length=1, cores=2)
    assert set(started) <= {0, 1, 2}
    assert sorted(stopped) == sorted(set(started) - {0})


@pytest.mark.parametrize("numbers", [{"chains": 0}, {"draws": 1.5}, {"tune": -1}, {"cores": True}])
def test_numbers_that_make_no_sense_are_refused(numbers):
    with pytest.raises(RequestError, match=next(iter(numbers))):
        check_counts(**numbers)
    check_counts(chains=1, draws=1, tune=0, cores=None)
