"""Settings that cannot work are refused when the feed is added, and not at three in the morning."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridaware.domain.errors import ConfigError, Unavailable
from gridaware.domain.fixes import FIXES
from gridaware.feeds import Feed

Opened = Callable[..., Feed[Any]]
MQTT = {"url": "mqtt://127.0.0.1:1", "topic": "grid/limit"}
MAPPED = {"map": "voltus", "subject": "site-a"}
DSX = {
    "url": "mqtt://127.0.0.1:1",
    "isv_id": "acme",
    "agent_id": "site-7",
    "feeds": {"main-a": {"default_kw": 10.0}},
    "allow_unsigned": True,
    "username": "site",
}
VTN = {"vtn_url": "http://127.0.0.1:1", "client_id": "ven"}


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\x00" * 16)
    path.chmod(0o600)
    return f"file:{path}"


@pytest.mark.parametrize(
    ("kind", "settings", "code"),
    [
        ("mqtt", {**MQTT, "presence_topic": "grid/limit"}, "mqtt-topics"),
        ("mqtt", {**MQTT, "status_topic": "grid/limit"}, "mqtt-topics"),
        ("mqtt", {**MQTT, "presence_topic": "a", "status_topic": "a"}, "mqtt-topics"),
        ("file", {"path": "/a\x00b.csv"}, "feed-settings-invalid"),
    ],
)
def test_what_can_never_work_is_refused(
    opened: Opened, kind: str, settings: dict[str, object], code: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        opened(kind, **settings)
    assert refused.value.code == code
    assert code in FIXES


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        ("mqtt", {**MQTT, "username": "site"}, "password"),
        ("mapped", MAPPED, "api_key"),
        ("openadr3", VTN, "client_secret"),
        ("carbon", {"provider": "electricity_maps", "place": "DE"}, "key"),
        ("dsx", DSX, "password"),
    ],
)
def test_a_secret_that_is_sent_as_text_is_text(
    opened: Opened, binary: str, kind: str, settings: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        opened(kind, **settings, **{key: binary})
    assert refused.value.code == "secret-not-text"


@pytest.mark.parametrize(
    ("kind", "settings", "code"),
    [
        ("mqtt", {**MQTT, "url": "mqtts://127.0.0.1:1"}, "mqtt-certificate"),
        ("openadr3", {"vtn_url": "https://127.0.0.1:1"}, "openadr3-ca-file"),
    ],
)
def test_user_case_13_missing_authorities_are_told_at_the_start(
    opened: Opened, tmp_path: Path, kind: str, settings: dict[str, object], code: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        opened(kind, **settings, ca_file=str(tmp_path / "absent.pem"))
    assert refused.value.code == code


def test_a_port_that_another_program_has_is_said_to_be_one(opened: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        feed: Any = opened("dnp3", neutral_kw=1000.0, port=taken.getsockname()[1])
        with pytest.raises(Unavailable) as away:
            feed.listen(lambda _: None, lambda: None)
    assert away.value.code == "dnp3-unreachable"
