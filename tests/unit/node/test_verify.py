"""What the agent makes of a look at a checkpoint."""

import json

import pytest

from gridaware.node.verify import Verdict, judge

FOUND = {"wrong": None, "job_id": "j", "attempt": 2, "request_id": "r", "step": 40}


def judged(**changes) -> Verdict:
    return judge(json.dumps(FOUND | changes).encode(), "j", 2, "r")


def test_a_good_checkpoint_of_this_request_is_believed() -> None:
    assert judged() == Verdict(None, 40)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"job_id": "other"}, "its manifest names job_id 'other', not 'j'"),
        ({"attempt": 1}, "its manifest names attempt 1, not 2"),
        ({"request_id": None}, "its manifest names request_id None, not 'r'"),
        ({"request_id": "older"}, "its manifest names request_id 'older', not 'r'"),
        ({"wrong": "a is missing"}, "a is missing"),
    ],
)
def test_a_checkpoint_of_anything_else_is_not(changes, wrong) -> None:
    assert judged(**changes).wrong == wrong


@pytest.mark.parametrize("raw", [b"", b"Traceback", b"[]", b"{}", b"null"])
def test_a_look_that_failed_is_no_proof(raw: bytes) -> None:
    assert judge(raw, "j", 2, "r").wrong == "the checkpoint could not be looked at"
