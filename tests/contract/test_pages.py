"""The kit's page server, as anybody's own program sees it: plain HTTP, asked with urllib."""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from gridaware.clock import ManualClock, SystemClock
from gridaware.sim.grid.pages import Page, PageQuirk, Pages, ercot_prc

AT = datetime(2026, 7, 30, 21, 0, 5, tzinfo=UTC)


def ask(url: str, headers: dict[str, str] | None = None, body: bytes | None = None):
    request = urllib.request.Request(url, headers=headers or {}, data=body)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_a_page_is_served_and_not_sent_again_to_whoever_has_it() -> None:
    with Pages(clock=ManualClock(AT)) as pages:
        pages.put("/a", {"n": 1})
        status, headers, body = ask(f"{pages.url}/a?x=1")
        assert (status, json.loads(body)) == (200, {"n": 1})
        assert headers["Date"] == headers["Last-Modified"] == "Thu, 30 Jul 2026 21:00:05 GMT"
        for condition in (
            {"If-None-Match": headers["ETag"]},
            {"If-Modified-Since": headers["Last-Modified"]},
        ):
            assert ask(f"{pages.url}/a", condition)[0] == 304
        pages.put("/a", {"n": 2})
        assert ask(f"{pages.url}/a", {"If-None-Match": headers["ETag"]})[0] == 200
        assert [asked.path for asked in pages.asked_of("/a")] == ["/a?x=1", "/a", "/a", "/a"]
        assert pages.asked[1].headers["if-none-match"] == headers["ETag"]
        assert ask(f"{pages.url}/b")[0] == 404


def test_answers_come_in_turn_or_from_a_function() -> None:
    with Pages() as pages:
        pages.serve("/turns", [Page(b"one"), Page(b"", 503), Page(b"two")])
        assert [ask(f"{pages.url}/turns")[0::2] for _ in range(4)] == [
            (200, b"one"),
            (503, b""),
            (200, b"two"),
            (200, b"two"),
        ]
        pages.serve("/echo", lambda asked: Page(asked.body, headers={"X-Way": asked.method}))
        status, headers, body = ask(f"{pages.url}/echo", body=b"hello")
        assert (status, headers["X-Way"], body) == (200, "POST", b"hello")


@pytest.mark.parametrize(
    ("quirk", "status", "starts"),
    [
        (PageQuirk.HTML_ERROR, 200, b"<html>"),
        (PageQuirk.TOO_MANY, 429, b"<html>"),
        (PageQuirk.UNAVAILABLE, 503, b"<html>"),
        (PageQuirk.MOVED, 404, b"<html>"),
        (PageQuirk.EMPTY, 200, b""),
        (PageQuirk.TRUNCATED, 200, b'{"n"'),
        (PageQuirk.OVERSIZE, 200, b'{"n": 1}  '),
    ],
)
def test_it_misbehaves_as_told(quirk: PageQuirk, status: int, starts: bytes) -> None:
    with Pages(quirks=[quirk]) as pages:
        pages.put("/a", {"n": 1})
        got, headers, body = ask(f"{pages.url}/a")
        assert got == status
        assert body.startswith(starts)
        assert (len(body) > 8 << 20) is (quirk is PageQuirk.OVERSIZE)
        assert (body == b"") is (quirk is PageQuirk.EMPTY)
        assert headers["Retry-After"] == ("30" if quirk is PageQuirk.TOO_MANY else None)


def test_a_redirect_leads_to_nothing() -> None:
    with Pages(quirks=[PageQuirk.REDIRECT]) as pages:
        with pytest.raises(urllib.error.HTTPError, match="infinite loop"):
            urllib.request.urlopen(f"{pages.url}/a", timeout=5)
        assert pages.asked[1].path == "/elsewhere"


def test_a_page_may_be_late_or_drip() -> None:
    seconds = SystemClock().monotonic_seconds
    with Pages() as pages:
        pages.serve("/late", Page(b"x", delay_seconds=0.1))
        pages.serve("/drip", Page(b"0123456789", drip_seconds=0.01))
        began = seconds()
        assert ask(f"{pages.url}/late")[2] == b"x"
        assert seconds() - began >= 0.1
        began = seconds()
        assert ask(f"{pages.url}/drip")[2] == b"0123456789"
        assert seconds() - began >= 0.09  # nine gaps


def test_an_operators_page_has_both_shapes_of_its_numbers() -> None:
    text = ercot_prc(AT, prc_megawatts=18983)
    number = ercot_prc(AT, prc_megawatts=13885, prc_as_text=False, eea_level=2, state="eea2")
    assert text["current_condition"]["prc_value"] == "18,983"
    assert text["lastUpdated"] == "2026-07-30 16:00:05-0500"
    assert number["current_condition"]["prc_value"] == 13885
    assert number["current_condition"]["eea_level"] == 2
    last = number["data"][-1]
    assert datetime.fromtimestamp(last["epoch"] / 1000, UTC) == AT
    before = datetime.fromtimestamp(number["data"][-2]["epoch"] / 1000, UTC)
    assert AT - before == timedelta(seconds=10)
