"""What to do about what an OpenADR 3 event says: one sentence per code."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_SETTINGS = {
    "openadr3-timezone": "Name a zone of the IANA database, such as America/Chicago.",
    "openadr3-units": "Give each unit of power its watts, such as `units: {MW: 1000000}`.",
    "openadr3-meanings": "Leave that type out of `meanings`; SIMPLE is mapped in `levels`.",
}

_EVENTS = {
    "event-other-object": "Send an event; programs, reports and vens are other objects.",
    "event-intervals-many": "Split the event: at most 5000 intervals.",
    "event-payloads-many": "Split the event: at most 10000 payloads.",
    "events-many": "Read it page by page: at most 10000 events at once.",
    "event-for-others": "Name one of our targets, or none; ours are the feed's `targets`.",
    "targets-malformed": "List the targets as names, or as objects with a type and values.",
    "descriptor-malformed": "Write it as OpenADR 3 defines it; its event stands without it.",
}

_TIMES = {
    "duration-negative": "Send a duration of zero or more.",
    "period-malformed": "Write it as an object with start, duration and randomizeStart.",
    "interval-malformed": "Write the interval as an object with an id and a list of payloads.",
    "interval-no-start": "Give the event or its first interval a start.",
    "interval-follows-nothing": "Give the interval a start, or the one before it a length.",
    "spread-absurd": "Send a randomizeStart of at most a week.",
    "cycle-short": "Repeat intervals that last a minute or more together.",
}

_PAYLOADS = {
    "payload-values": "Send one value in a list; several only for prices and emissions.",
    "payload-number": "Send a number.",
    "payload-absurd": "Check the unit: values are at most 10^12.",
    "payload-level": "Send a level that the payload type has, as a whole number.",
    "payload-range": "Send a share of -1.0 to 1.0, not a percentage.",
    "payload-unit": "Say a unit of power (KW) in a payload descriptor; private ones are set in the "
    "feed's `units`, one for all in `default_unit`.",
    "payload-unmapped": "Say what it means in the feed's `meanings`, or in `levels` for SIMPLE.",
    "payload-several": "Map its values to one target, or send one of them.",
    "payload-sign-unset": "Ask the programme which way is less, and set it in the feed's settings.",
    "payload-more-load": "Ask for less load: a feed never raises it.",
}

_SERVER = {
    "openadr3-url": "Use https, or http to this machine; set `allow_insecure_http` only where "
    "nobody else is on the network.",
    "openadr3-ca-file": "Give the path of a file of PEM certificates as `ca_file`.",
    "openadr3-token": "Check `client_id`, the secret it goes with, `scope` and `token_url`.",
    "openadr3-unauthorized": "Check `client_id` and its secret, and what the server lets it do.",
    "openadr3-refused": "Read what the server says; check `vtn_url` and `version`.",
    "openadr3-garbled": "Check that `vtn_url` is the API's and that no proxy answers for it.",
    "openadr3-endless": "Ask for fewer events: name `targets`, or have old events deleted.",
    "openadr3-told-to-wait": "Wait; poll less often where it happens again.",
    "openadr3-clock-offset": "Compare both clocks with UTC: events begin and end by ours.",
    "openadr3-server-restarted": "Events it lost are held until their end: ask the programme "
    "whether they stand, and cancel by hand those that do not.",
    "openadr3-subscription-lost": "Nothing: it is made anew, and polls go on.",
    "openadr3-scope-lost": "Ask the server's operator which targets and scopes this client has.",
    "openadr3-not-registered": "Have the operator create the VEN under `ven_name`, or give the "
    "client the scopes to; or set `register_ven: false`.",
    "openadr3-program-unknown": "Compare `program_ids` and `program_names` with the server's "
    "programs, and ask whether this client may see them.",
    "openadr3-no-broker": "Set `mqtt: false`: the server has no broker that this client can use.",
    "openadr3-report-refused": "Read what the server says; check the scopes of the client.",
    "openadr3-report-unknown": "Ask the programme for USAGE, DEMAND, BASELINE, OPERATING_STATE, "
    "LOAD_SHED_DELTA_AVAILABLE or DATA_QUALITY of what was, in KW or KWH.",
    "signature-bearer": "Send the bearerToken of the subscription as `Authorization: Bearer`.",
    "echo-missing": "Send the challenge as `?echo=` and a word.",
    "notification-unknown": "Send a notification with the object that changed; the list is polled "
    "all the same.",
}

FIXES: Mapping[str, str] = {**_SETTINGS, **_EVENTS, **_TIMES, **_PAYLOADS, **_SERVER}
