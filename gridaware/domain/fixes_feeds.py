"""What to do about the errors of feeds and of the messages they carry: one sentence per code."""

from collections.abc import Mapping

from gridaware.domain.fixes_ieee2030 import FIXES as _IEEE2030

__all__ = ["FIXES"]

_SIGNING = {
    "signature-missing": "Sign `<timestamp>.<body>` with HMAC-SHA256 and send the result as "
    "`Gridaware-Signature: v1=<hex>`.",
    "signature-malformed": "Send `v1=` and the 64 hexadecimal digits of the HMAC-SHA256.",
    "signature-bad": "Sign the exact bytes of the body, as `<timestamp>.<body>`, with the secret "
    "that the feed was registered with.",
    "signature-no-secret": "Name a secret in the feed's settings: `secrets: [env:NAME]` or "
    "`[file:/path]`.",
    "timestamp-missing": "Send the seconds since 1970 as `Gridaware-Timestamp` and put them under "
    "the signature.",
    "timestamp-malformed": "Send whole seconds since 1970, in digits alone.",
    "timestamp-stale": "Sign the message when it is sent, and compare the sender's clock with UTC.",
    "timestamp-future": "Compare the clocks of the sender and of this machine with UTC.",
    "webhook-replayed": "To try again, sign the same id and revision with a new timestamp: it is "
    "answered as a duplicate.",
    "webhook-busy": "Wait a moment and send it again with a new timestamp.",
}

_EVENTS = {
    "event-too-large": "Send one event in at most 64 KiB.",
    "event-not-utf8": "Encode the message as UTF-8.",
    "event-not-json": "Correct the JSON at the place shown.",
    "event-not-object": "Send one JSON object, not a list or a plain value.",
    "event-nested": "Send one flat object; only the target is an object within it.",
    "event-key-repeated": "Give each key once.",
    "event-key-unknown": "Use the key that is suggested, or leave it out.",
    "event-key-missing": "Add the key; an event has at least id, start, target and one of end, "
    "duration and open_end.",
    "event-end-count": "Give exactly one of end, duration and open_end.",
    "cancel-with-request": 'Send only id, a higher revision and `"cancel": true`.',
    "target-key-unknown": "Use limit_kw, limit_percent_of_baseline, reduce_kw or reduce_percent.",
    "target-count": "Give exactly one quantity; send a second event for a second one.",
    "target-type": "Write the target as an object with one number, such as "
    '`{"reduce_percent": 40}`.',
    "target-percent-range": "Send a percentage between 0 and 100.",
    "number-not-finite": "Send a finite number; JSON has no NaN and no Infinity.",
    "time-type": "Write the time as a string, such as 2026-11-30T14:00:00Z.",
    "time-malformed": "Write the time as in 2026-11-30T14:00:00Z.",
    "time-absurd": "Check the year.",
    "duration-type": "Write the duration as a string, such as PT1H30M.",
    "duration-malformed": "Write the duration as in PT45S, PT1H30M or P2D.",
    "duration-calendar": 'Give days or hours; for an event without an end send `"open_end": true`.',
    "duration-zero": "Give a duration above zero; to end an event send a cancellation.",
    "kind-unknown": "Use live, test or drill.",
    "revision-type": "Number revisions with whole numbers from 0 upwards.",
    "priority-type": "Send a whole number from 0 (most important), or leave it out.",
    "priority-range": "Send a whole number from 0 (most important), or leave it out.",
    "flag-type": "Write true or false, without quotes.",
}

_LISTENER = {
    "feed-unknown": "Look the feed up with `gridaware feed list`, or register it with "
    "`gridaware feed add`.",
    "feed-not-pushed": "Send signals to a feed of kind webhook; this one asks for its signals.",
    "feed-not-parsable": "Use a kind whose messages come as files, such as openadr3.",
    "content-type-unsupported": "Send `Content-Type: application/json`.",
    "body-too-slow": "Send the whole body at once.",
    "rate-exceeded": "Send fewer signals, or raise the feed's rate_per_second.",
    "accept-timeout": "Send it again with a new timestamp: if it was taken, it is answered as a "
    "duplicate.",
    "internal": "Look into the log of control for the trace.",
}

_FEEDS = {
    "programme-unknown": "Name a programme of the settings, or declare it there.",
    "programme-not-catalogued": "Name one that `gridaware programme list` shows, or leave "
    "`catalogue` out and state its values.",
    "programmes-exclusive": "Keep one of the two. Where your contract allows both, declare one "
    "without `catalogue`, under an id of its own, with its values stated.",
    "feed-kind-unknown": "Use one of the kinds that `gridaware feed add --help` lists.",
    "feed-exists": "Remove it first, or choose another id.",
    "feeds-too-many": "Remove feeds that are no longer used.",
    "feed-settings-invalid": "Correct each setting shown.",
    "feed-settings-not-json": "Write the settings as one JSON object.",
    "feed-impostor": "Report it to whoever wrote that feed kind.",
    "feed-time-not-utc": "Report it to whoever wrote that feed kind.",
    "feed-raw-too-large": "Report it to whoever wrote that feed kind.",
    "refusals-suppressed": "Find out who sends so many messages that are refused.",
    "feed-hung": "Look at what the feed waits for; its requests in force go on meanwhile.",
    "feed-failed": "Look into the log of control for the trace.",
    "feed-connection-lost": "Look at the other side; the feed tries again by itself.",
    "feed-memory-broken": "Restore the file from a backup, or leave it: the feed begins anew.",
    "feed-memory-full": "Report it to whoever wrote that feed kind.",
    "feed-memory-not-json": "Report it to whoever wrote that feed kind.",
    "feed-memory-unwritable": "Make room on the disk of the state folder, and make it writable.",
    "advisory-quantity": "Report it to whoever wrote that feed kind.",
    "advisory-not-finite": "Look at what the feed's source publishes.",
    "advisory-too-long": "Look at what the feed's source publishes.",
    "advisory-not-utc": "Report it to whoever wrote that feed kind.",
    "advisory-window": "Look at what the feed's source publishes.",
    "secret-reference": "Write `env:NAME` or `file:/absolute/path`; never the secret itself.",
    "secret-exposed": "Run `chmod 600` on the file: nobody but its owner may read it.",
    "secret-not-text": "Write the password or key alone into it, as one line of UTF-8.",
    "secret-short": "Use at least 16 random bytes, such as from `openssl rand -hex 32`.",
    "cron-malformed": "Write five fields: minute, hour, day, month, weekday.",
    "cron-day-ambiguous": "Restrict the day of the month or the weekday, not both: cron programs "
    "disagree on what both mean.",
    "cron-never": "Choose a day that exists.",
    "window-too-long": "Use windows of at most 31 days.",
    "message-unreadable": "Check the path, and that you may read the file.",
    "message-too-large": "Take one message, or one page of a list, into a file of at most 16 MiB.",
    "file-missing": "Check the path, as seen by the machine that runs control.",
    "file-unreadable": "Make the file readable for the user who runs control.",
    "file-not-regular": "Name a plain file.",
    "file-too-large": "Split the file: at most 4 MiB and 10 000 rows.",
    "file-format": "Name the file .csv, .json or .jsonl, or set `format`.",
    "file-header": "Start the CSV with a line of column names, each once.",
    "file-row": "Correct that row; the others are not affected.",
    "extra-missing": "Install the extra that is named, into the environment of control.",
    "mqtt-topics": "Give `topic`, `presence_topic` and `status_topic` a topic each.",
    "mqtt-url": "Write the address as mqtts://host:8883, or mqtt://127.0.0.1:1883.",
    "mqtt-insecure": "Use mqtts, or set `allow_insecure` if nobody else is on that network.",
    "mqtt-certificate": "Check the path, and that the file is a certificate in PEM.",
    "mqtt-unreachable": "Check the address, the network, and whether the broker runs.",
    "mqtt-connection-lost": "Look at the broker; the feed connects again by itself.",
    "mqtt-refused": "Check the user, the password or token, and the rights on the topic.",
    "mqtt-unacknowledged": "Look at whether the broker is overloaded.",
    "mqtt-sequence": "Number the messages with whole numbers that rise.",
    "mqtt-sequence-passed": "Give each message a higher sequence than the one before.",
    "mqtt-valid-until": "Say `valid_until` with every limit; a retained one must end by itself.",
    "mqtt-release": 'Send `{"sequence": N, "release": true}` alone.',
    "mqtt-stale": "Send a new limit with a later `valid_until`, and compare both clocks with UTC.",
    "mqtt-sender-gone": "Look at the sender; the limit holds until it is no longer valid.",
    "dnp3-open": "Name the masters in `master_hosts`, or listen on 127.0.0.1 behind a tunnel.",
    "dnp3-unreachable": "Check host and port, and whether another program listens there.",
    "map-unknown": "Use a map that is listed, or write the map into the settings.",
    "map-invalid": "Correct the map at the place shown, as docs/feeds/mapped.md says.",
    "map-items": "Compare the map's `items` with a message of the aggregator.",
    "map-subject-ambiguous": "Set `subject` to the meter, site or asset id that is this site's.",
    "map-null-target": "Set `null_target` to what the site gives then, such as "
    "`{reduce_percent: 40}`.",
    "map-key-missing": "Set `api_key` to the reference of the aggregator's key.",
    "peer-refused": "Check the key and the URL; look at the aggregator's status page.",
    "peer-garbled": "Check that the URL is the right one.",
    "tell-elsewhere": "Set `status_prefix` to the aggregator's own address, if it is that.",
    "status-url-insecure": "Use an https URL; plain http is allowed to this machine alone.",
    "tell-refused": "Look at why the receiver refuses the status message.",
    "tell-unreachable": "Look at whether the status URL answers.",
    "tell-overflow": "Look at whether the status URL answers.",
    "peer-unreachable": "Check the URL, the network, and whether the server behind it runs.",
    "peer-certificate": "Compare `ca_file` with who signed the server's certificate, the host in "
    "the URL with its names, and our certificate with what the server accepts.",
    "client-certificate": "Give the paths of a PEM certificate and of its key, without a password.",
    "answer-too-large": "Check that the URL is the right one.",
    "answer-too-late": "Check the network and the server behind the URL.",
}

FIXES: Mapping[str, str] = {**_SIGNING, **_EVENTS, **_LISTENER, **_FEEDS, **_IEEE2030}
"""Code → what to do. :mod:`gridaware.domain.fixes` merges it with the others."""
