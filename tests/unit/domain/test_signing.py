"""Webhook signatures, held against RFC 4231 and against everything a forger may try."""

import pytest

from gridaware.domain.errors import ConfigError, Refused
from gridaware.domain.signing import sign, verify

NOW = 1_796_040_000
SECRET = b"a secret of the utility"
BODY = b'{"id":"dr-1"}'


def test_the_code_is_that_of_rfc_4231_test_case_7() -> None:
    # Its text has one full stop inside: what stands before it takes the timestamp's place.
    text = (
        b"This is a test using a larger than block-size key and a larger than block-size data",
        b" The key needs to be hashed before being used by the HMAC algorithm.",
    )
    expected = "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"
    assert sign(b"\xaa" * 131, text[0].decode(), text[1]) == f"v1={expected}"


def test_a_message_is_known_by_its_authentic_code_however_the_header_is_written() -> None:
    signature = sign(SECRET, NOW, BODY)
    code = verify([SECRET], str(NOW), BODY, signature, NOW)
    shouted = "v1=" + signature.removeprefix("v1=").upper()
    padded = f"v1={'0' * 64}, {signature}"
    assert signature == f"v1={code}"
    assert verify([SECRET], str(NOW), BODY, shouted, NOW) == code
    assert verify([SECRET], str(NOW), BODY, padded, NOW) == code


def test_either_secret_will_do_while_one_is_replaced() -> None:
    old, new = b"the old secret 0", b"the new secret 1"
    for used in (old, new):
        assert verify([new, old], str(NOW), BODY, sign(used, NOW, BODY), NOW)
    with pytest.raises(Refused) as refusal:
        verify([new], str(NOW), BODY, sign(old, NOW, BODY), NOW)
    assert refusal.value.code == "signature-bad"


@pytest.mark.parametrize(
    ("timestamp", "signature", "code"),
    [
        (None, "good", "timestamp-missing"),
        ("", "good", "timestamp-missing"),
        ("now", "good", "timestamp-malformed"),
        ("-5", "good", "timestamp-malformed"),
        (f" {NOW}", "good", "timestamp-malformed"),
        (f"{NOW}.5", "good", "timestamp-malformed"),
        ("٣" * 10, "good", "timestamp-malformed"),
        ("9" * 400, "good", "timestamp-malformed"),
        (str(NOW), None, "signature-missing"),
        (str(NOW), "", "signature-missing"),
        (str(NOW), "v1=", "signature-malformed"),
        (str(NOW), "v2=" + "0" * 64, "signature-malformed"),
        (str(NOW), "v1=" + "é" * 64, "signature-malformed"),
        (str(NOW), ",".join(["v1=" + "0" * 64] * 5), "signature-malformed"),
        (str(NOW), "v1=" + "0" * 64, "signature-bad"),
        (f"0{NOW}", "good", "signature-bad"),
        (str(NOW + 1), "good", "signature-bad"),
    ],
)
def test_what_is_missing_malformed_or_forged_is_refused(
    timestamp: str | None, signature: str | None, code: str
) -> None:
    given = sign(SECRET, NOW, BODY) if signature == "good" else signature
    with pytest.raises(Refused) as refusal:
        verify([SECRET], timestamp, BODY, given, NOW)
    assert refusal.value.code == code


def test_a_changed_byte_of_the_body_breaks_the_signature() -> None:
    with pytest.raises(Refused, match="none of the feed's secrets"):
        verify([SECRET], str(NOW), BODY + b" ", sign(SECRET, NOW, BODY), NOW)


@pytest.mark.parametrize(
    ("late_seconds", "code"),
    [(300.0, None), (300.5, "timestamp-stale"), (-300.0, None), (-300.5, "timestamp-future")],
)
def test_the_window_is_closed_on_both_sides(late_seconds: float, code: str | None) -> None:
    signature = sign(SECRET, NOW, BODY)
    if code is None:
        assert verify([SECRET], str(NOW), BODY, signature, NOW + late_seconds)
        return
    with pytest.raises(Refused) as refusal:
        verify([SECRET], str(NOW), BODY, signature, NOW + late_seconds)
    assert refusal.value.code == code


def test_a_stranger_is_told_nothing_about_our_clock() -> None:
    with pytest.raises(Refused) as refusal:
        verify([SECRET], "1", BODY, "v1=" + "0" * 64, NOW)
    assert refusal.value.code == "signature-bad"


def test_without_a_secret_nothing_is_authentic() -> None:
    with pytest.raises(ConfigError) as refusal:
        verify([], str(NOW), BODY, sign(b"", NOW, BODY), NOW)
    assert refusal.value.code == "signature-no-secret"
