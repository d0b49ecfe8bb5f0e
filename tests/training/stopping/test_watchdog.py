"""The watchdog: a process that uses no processor time is reported."""

import time

from rlcli.training.stopping.run_end import report_idling


def test_a_process_that_sleeps_is_reported_and_nothing_after_the_context():
    reports = []
    with report_idling(reports.append, patience=0.2):
        time.sleep(0.6)
    assert "idle" in reports[0]
    count = len(reports)
    time.sleep(0.3)
    assert len(reports) == count
