"""What a driver runs with and what differs from the driver before."""

from dataclasses import replace

from sluicegate.console.settings import Difference, running_settings
from sluicegate.storage.driver_start import DriverStart

OLD = DriverStart(1, {"interval": "10 seconds", "removed": "1"})
NEW = DriverStart(2, {"interval": "1 second", "added": "2"})
RESTARTED = DriverStart(3, NEW.settings)


def test_it_names_each_setting_that_differs_from_the_driver_before() -> None:
    running = running_settings([NEW, OLD])
    assert running is not None
    assert running.differences == (
        Difference("added", None, "2"),
        Difference("interval", "10 seconds", "1 second"),
        Difference("removed", "1", None),
    )


def test_a_restart_does_not_hide_the_last_change() -> None:
    running = running_settings([RESTARTED, NEW, OLD])
    assert running is not None
    assert (running.started_at_ms, running.since_ms, running.drivers) == (3, 2, 2)
    assert (running.before_ms, len(running.differences)) == (1, 3)


def test_the_parts_of_the_start_are_those_of_the_last_driver() -> None:
    running = running_settings([replace(NEW, seconds={"session": 4.0}), OLD])
    assert running is not None
    assert running.seconds == {"session": 4.0}


def test_without_another_driver_nothing_differs() -> None:
    running = running_settings([OLD])
    assert running is not None
    assert (running.before_ms, running.differences) == (0, ())
    assert running_settings([]) is None
