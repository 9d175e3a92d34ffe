"""What to do about errors of DSX Flex messages: one sentence per code."""

from collections.abc import Mapping

__all__ = ["FIXES"]

FIXES: Mapping[str, str] = {
    "dsx-attribute": "Write the attributes that CloudEvents 1.0.2 and DSX Flex 1.7 require: UUIDs "
    "as id and correlationid, `//grid/v1/isv/<id>` as source.",
    "dsx-traceparent": "Send a W3C `traceparent`, such as "
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.",
    "dsx-type": "Send grid.loadtarget.set.v1 on the topic of load targets.",
    "dsx-source": "Let each participant publish on its own topic alone, and set `isv_id` to the "
    "sender's.",
    "dsx-unsigned": "Sign the data (JWS, compact), or set `allow_unsigned` if nobody else can "
    "publish on the topic.",
    "dsx-key": "Give a public (or for `signing_key` a private) key in PEM: P-256, RSA of at least "
    "2048 bits, or Ed25519.",
    "dsx-replayed": "Find out who copies messages. A sender whose signatures are deterministic "
    "puts a `start_time` into each target, so that no two messages are the same.",
    "dsx-stale": "Send the target anew, and compare the sender's clock with UTC.",
    "dsx-future": "Compare the sender's clock and this machine's with UTC.",
    "dsx-over": "Send a target whose end lies ahead, and compare both clocks with UTC.",
    "dsx-schedule-many": "Send fewer and longer targets: at most 1000 parts stand at once.",
    "dsx-targets": "Send 1 to 300 targets in a list.",
    "dsx-target-malformed": "Write the target as DSX Flex 1.7 defines it.",
    "dsx-target-key-unknown": "Use the key that is suggested, or leave it out.",
    "dsx-target-value": "Send a limit above 0; null brings the default back.",
    "dsx-target-unit": "Use watt, kilowatt or megawatt.",
    "dsx-inform-malformed": "Write the message as DSX Flex 1.7 defines it.",
    "jws-malformed": "Send header.payload.signature, each in base64url without padding.",
    "jws-algorithm": "Sign with the algorithm of the key: ES256, RS256 or EdDSA.",
    "jws-key-unknown": "Name the sender's key in the feed's `keys` by the `kid` it signs with.",
    "jws-signature": "Compare the key in the settings with the sender's; nothing was done.",
}
"""Code → what to do. :mod:`gridaware.domain.fixes` merges it with the others."""
