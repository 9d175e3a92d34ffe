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

FIXES: Mapping[str, str] = {**_SETTINGS, **_EVENTS, **_TIMES, **_PAYLOADS}
