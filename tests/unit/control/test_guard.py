"""The last word before limits leave."""

import pytest

from gridaware.control.guard import guarded, same_limits
from gridaware.domain.fleet import Gpu, LimitRange

RANGE = LimitRange(100.0, 400.0, 400.0)
GPUS = {
    "a": Gpu("a", 0, "m", RANGE, 400.0),
    "found": Gpu("found", 1, "m", RANGE, 300.0),
    "fixed": Gpu("fixed", 2, "m", RANGE, 400.0, can_set=False),
}


@pytest.mark.parametrize(
    ("caps", "limits"),
    [
        ({"a": 250.04}, {"a": 250.0}),
        ({"a": 20.0}, {"a": 100.0}),  # below the device's minimum
        ({"a": 900.0}, {}),  # above what it accepts
        ({"found": 350.0}, {}),  # above the found limit: left alone
        ({"found": 299.8}, {}),  # as good as the found limit
        ({"fixed": 200.0, "gone": 200.0}, {}),
    ],
)
def test_no_limit_leaves_the_devices_range_or_the_found_limit(caps: dict, limits: dict) -> None:
    assert guarded(caps, GPUS) == limits


@pytest.mark.parametrize(
    ("held", "wanted", "same"),
    [
        ({"a": 200.0}, {"a": 200.2}, True),
        ({"a": 200.0}, {"a": 201.9}, True),
        ({"a": 200.0}, {"a": 202.0}, False),
        ({"a": 200.0}, {"a": 199.7}, False),
        ({"a": 200.0}, {"a": 199.8}, True),
        ({"a": 200.0}, {}, False),
        ({}, {}, True),
    ],
)
def test_noise_moves_no_limit_and_lowering_counts_sooner(held, wanted, same) -> None:
    assert same_limits(held, wanted) is same
