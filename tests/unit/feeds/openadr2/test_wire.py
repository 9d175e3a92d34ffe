"""Every message that we write, by the profile's schema and by openleadr's reader."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gridaware.domain.errors import Bug
from gridaware.feeds.openadr2.reports import GOOD, offered
from gridaware.feeds.openadr2.wire import Wire
from gridaware.feeds.openadr2.xmltree import read_xml

messaging = pytest.importorskip("openleadr.messaging")

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
HOSTILE = "\"'><&]]> é"
OK = {"response_code": 200, "response_description": "OK", "request_id": HOSTILE}
US: dict[str, Any] = {"ven_id": HOSTILE}
STATUS = {"r_id": "status", "value": None, "online": True, "override": False, "quality": GOOD}
MESSAGES: dict[str, dict[str, Any]] = {
    "oadrCreatePartyRegistration": {
        "request_id": HOSTILE,
        "registration_id": HOSTILE,
        "profile_name": "2.0b",
        "transport_name": "simpleHttp",
        "transport_address": "",
        "report_only": False,
        "xml_signature": True,
        "ven_name": HOSTILE,
        "http_pull_model": True,
        **US,
    },
    "oadrPoll": US,
    "oadrRequestEvent": {"request_id": "list", **US},
    "oadrResponse": {"response": OK, **US},
    "oadrCreatedEvent": {
        "response": OK,
        "event_responses": [
            {
                "response_code": 200,
                "response_description": HOSTILE,
                "request_id": HOSTILE,
                "event_id": HOSTILE,
                "modification_number": 3,
                "opt_type": "optIn",
            }
        ],
        **US,
    },
    "oadrCanceledPartyRegistration": {"response": OK, "registration_id": HOSTILE, **US},
    "oadrRegisterReport": {
        "request_id": HOSTILE,
        "reports": offered(HOSTILE, NOW, hertz=60.0, volts=480.0),
        **US,
    },
    "oadrRegisteredReport": {"response": OK, "report_requests": [], **US},
    "oadrCreatedReport": {
        "response": OK,
        "pending_reports": [{"report_request_id": HOSTILE}],
        **US,
    },
    "oadrCanceledReport": {"response": OK, "pending_reports": [], **US},
    "oadrUpdatedReport": {"response": OK, **US},
    "oadrUpdateReport": {
        "request_id": HOSTILE,
        "intervals": [
            {
                "start": NOW,
                "length": timedelta(minutes=1),
                "payloads": [{"r_id": "power", "value": 812.5, "quality": GOOD}, STATUS],
            },
            {"start": NOW, "length": None, "payloads": [STATUS]},
        ],
        "report_request_id": HOSTILE,
        "report_specifier_id": "gridaware-usage",
        "report_name": "TELEMETRY_USAGE",
        "created": NOW,
        **US,
    },
}


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_a_message_is_valid_and_says_back_what_it_was_told(kind: str) -> None:
    body = Wire().make(kind, **MESSAGES[kind])
    messaging.validate_xml_schema(body)
    root = read_xml(body)
    assert [node.name for node in root.walk()][:3] == ["oadrPayload", "oadrSignedObject", kind]
    vens = [node.text for node in root.walk() if node.name == "venID"]
    assert vens == [HOSTILE]


def test_a_message_that_cannot_be_written_is_our_fault() -> None:
    with pytest.raises(Bug) as failed:
        Wire().make("oadrNothing")
    assert failed.value.code == "openadr2-message"


def test_a_report_says_what_was_measured_when() -> None:
    body = Wire().make("oadrUpdateReport", **MESSAGES["oadrUpdateReport"])
    kind, payload = messaging.parse_message(body)
    assert kind == "oadrUpdateReport"
    (report,) = payload["reports"]
    assert [each["report_payload"]["r_id"] for each in report["intervals"]] == [
        "power",
        "status",
        "status",
    ]
    first = report["intervals"][0]
    assert (first["dtstart"], first["duration"]) == (NOW, timedelta(minutes=1))
    assert first["report_payload"]["value"] == 812.5
