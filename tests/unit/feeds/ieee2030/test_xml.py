"""XML of a stranger: bounded, without document types, with vocabularies told apart."""

import pytest

from gridaware.domain.errors import InvalidInput
from gridaware.feeds.ieee2030.xml import CSIPAUS, NAMESPACE, SEP, read_xml, text_of

BOMB = b"""<!DOCTYPE a [<!ENTITY b "cccccccc"><!ENTITY d "&b;&b;&b;&b;&b;&b;&b;&b;">]><a>&d;</a>"""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b'{"id": 1}',
        b"<html><p>",
        b"<a>" * 30 + b"</a>" * 30,
        b"<a>" + b"<b/>" * 100_001 + b"</a>",
        b"<a>" + b" " * (4 << 20) + b"</a>",
        BOMB,
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b"<a>&undefined;</a>",
        b"<a>\xff</a>",
        b"<a/><b/>",
        b"<p:a/>",
    ],
)
def test_what_is_hostile_or_broken_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_xml(body)
    assert caught.value.code == "ieee2030-xml"


@pytest.mark.parametrize(
    ("namespace", "space"),
    [
        (NAMESPACE, SEP),
        ("https://csipaus.org/ns", CSIPAUS),
        ("http://csipaus.org/ns", CSIPAUS),
        ("https://csipaus.org/ns/v1.3", CSIPAUS),
        ("https://csipaus.org/ns/v1.3-beta/storage", CSIPAUS),
        ("https://csipaus.org/ns/v2.0", "https://csipaus.org/ns/v2.0"),
        ("https://csipaus.org.evil/ns", "https://csipaus.org.evil/ns"),
        ("http://zigbee.org/sep", "http://zigbee.org/sep"),
    ],
)
def test_vocabularies_are_told_apart_whatever_their_prefix(namespace: str, space: str) -> None:
    root = read_xml(f'<x:value xmlns:x="{namespace}">7</x:value>'.encode())
    assert (root.space, root.name, root.text) == (space, "value", "7")


def test_what_is_read_is_written_as_the_same_once_more() -> None:
    body = (
        f'<DERControl xmlns="{NAMESPACE}" xmlns:c="https://csipaus.org/ns" replyTo="/r?a=1&amp;b">'
        "<description> &lt;\u00e9&gt; </description><c:opModImpLimW><value>1</value>"
        "</c:opModImpLimW></DERControl>"
    )
    root = read_xml(body.encode())
    again = read_xml(text_of(root).encode())
    assert text_of(again) == text_of(root)
    assert again.attributes == {"replyTo": "/r?a=1&b"}
    description, limit = again.children
    assert description.text == "<\u00e9>"
    assert limit.find("value") is not None
    assert limit.space == CSIPAUS
