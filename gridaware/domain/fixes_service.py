"""What to do about errors of the store and of the HTTP API: one imperative sentence per code."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_STORE = {
    "store-locked": "Stop the controller with the pid shown, or let that one serve.",
    "store-full": "Make room on the store's disk; what is queued is written as soon as it fits.",
    "store-read-only": "Mount the store's disk for writing, or move state_dir to one that is.",
    "store-no-permission": "Give the user who runs gridaware the state_dir.",
    "store-cannot-open": "Check that state_dir is a folder that the user of gridaware can write.",
    "store-io": "Check the disk under state_dir; the kernel's log names the fault.",
    "store-busy": "Try again; if it lasts, see which other program has the database open.",
    "store-slow": "Check the disk under state_dir: one commit took longer than it may.",
    "store-backlog": "Check the disk under state_dir: it takes less than it is given.",
    "store-unavailable": "Try again; `gridaware doctor` looks at the store.",
    "store-closed": "Start the controller again: this one is ending.",
    "store-not-ready": "Start the controller: `gridaware serve` prepares the store.",
    "store-corrupt": "Stop gridaware, keep the file, and put a backup in its place.",
    "store-schema-newer": "Install the version of gridaware that wrote it, or a later one.",
    "store-wrong-site": "Set site.name to the site that the store was made for, or state_dir to "
    "this site's own.",
    "store-in-memory": "Give store.url a file, such as sqlite:////var/lib/gridaware/gridaware.db.",
    "store-not-sqlite": "Set store.url to an sqlite URL, or leave it out.",
    "store-url-malformed": "Write store.url as sqlite:////ABSOLUTE/PATH, or leave it out.",
    "store-driver-missing": "Set store.url to an sqlite URL, or leave it out.",
    "ledger-altered": "Keep the file as evidence, and compare the entry shown with a backup.",
    "ledger-unlinked": "Keep the file as evidence, and compare the entry shown with a backup.",
    "ledger-gap": "Keep the file as evidence, and look for the missing entry in a backup.",
    "ledger-foreign": "Check that this is the ledger of the site that is named.",
}

_KEYS = {
    "report-table-unknown": "Name one of the tables that the message lists.",
    "api-key-absent": "Send the key as `Authorization: Bearer KEY`; for the command line set "
    "GRIDAWARE_API_KEY.",
    "api-key-unknown": "Use the key that `gridaware init` showed, or add the hash of another to "
    "the key file.",
    "api-key-file-unreadable": "Run `gridaware init`, or name the file in web.api_key_file.",
    "api-key-file-malformed": "Write one key a line as NAME sha256:HEX.",
    "api-key-file-empty": "Delete the file and run `gridaware init` for a new key.",
}

_REQUESTS = {
    "request-invalid": "Correct each thing listed; /api/v1/openapi.json describes every request.",
    "body-malformed": "Send one JSON object, in UTF-8.",
    "text-not-unicode": "Send whole characters: an escape of D800 to DFFF needs its other half.",
    "body-too-large": "Send at most 1 MiB; large files belong into shared storage.",
    "cursor-malformed": "Pass next_cursor on as it came, or leave the cursor out to begin again.",
    "limit-range": "Ask for 1 to 1000 items a page.",
    "route-unknown": "Look it up in /api/v1/openapi.json; signals go to /api/v1/signals/FEED.",
    "method-not-allowed": "Look the method up in /api/v1/openapi.json; signals are sent by POST.",
    "idempotency-key-malformed": "Use 1 to 200 printable ASCII characters, such as a UUID.",
    "idempotency-key-reused": "Use a fresh key for each new request.",
    "power-range-too-fine": "Ask for a shorter range or a longer step.",
    "stream-full": "Close a stream that nobody reads, or try again later.",
    "stream-kind-unknown": "Ask for status, event, job, node, feed, policy or report.",
    "job-unknown": "List the jobs: `gridaware job list`.",
    "event-unknown": "List the events: `gridaware event list`.",
    "node-unknown": "List the nodes: `gridaware node list`.",
    "report-file-unwritable": "Name a file in a folder that is there and that you may write.",
    "report-malformed": "Show it with the version of gridaware that made it.",
    "report-unknown": "Wait until the event has ended; its report is made then.",
}

_CONTROL = {
    "control-unreachable": "Start the controller: `gridaware serve`; nothing was done.",
    "control-slow": "Look whether it was done before trying again; `gridaware doctor` tells what "
    "is slow.",
    "controller-gone": "Start the controller: `gridaware serve`; agents hold their limits "
    "meanwhile.",
    "status-not-ready": "Try again in a second: the controller is starting.",
}

FIXES: Mapping[str, str] = {**_STORE, **_KEYS, **_REQUESTS, **_CONTROL}
"""Every code of ``store`` and ``service``, with its advice."""
