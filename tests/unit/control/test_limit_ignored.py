"""A GPU that ignores its limit is alarmed for as long as it does (notes §6, cases 26 and 35)."""

from gridaware.domain.wire import NodeFault


def test_the_alarm_of_a_limit_that_is_ignored_ends_when_it_is_obeyed(bench):
    bench.post(NodeFault("n1", "limit-ignored", "g10", "draws 420 W under a limit of 293 W"))
    assert [alarm for alarm in bench.state.alarms if alarm.startswith("limit-ignored")]
    bench.post(NodeFault("n1", "limit-obeyed", "g10", "its power obeys the limit again"))
    assert not [alarm for alarm in bench.state.alarms if alarm.startswith("limit-")]
