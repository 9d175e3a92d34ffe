"""What to do about the errors of GPUs, of a node's agent, and of its link to control."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_DEVICE = {
    "device-no-permission": "Run the agent as root; setting a limit needs CAP_SYS_ADMIN, reading "
    "does not.",
    "device-out-of-range": "Ask for a limit inside the range that `gridaware gpu list -o json` "
    "shows.",
}

_AGENT = {
    "settings-unreadable": "Name a readable YAML file with `--config`.",
    "settings-invalid": "Correct each line shown; `gridaware init DIR --node NAME` writes one that "
    "holds.",
    "state-dir": "Give the agent's state_dir to root; the journal must survive restarts.",
    "agent-running": "Stop the other agent of this node first: one node has one.",
    "journal-read": "Make the journal readable for the agent.",
    "journal-write": "Make room on the disk of the agent's state_dir: no limit is changed without "
    "a journal.",
    "journal-version": "Run the agent's version that wrote the journal, or a newer one.",
    "journal-corrupt": "Compare the limits with `nvidia-smi -q -d POWER`, then move the journal "
    "away.",
    "agent-permission": "Ask as root: `sudo gridaware release`.",
    "agent-timeout": "Try again; if it goes on, restart the agent: it finishes from its journal.",
    "agent-unreachable": "Start the agent as root: `gridaware agent --config FILE`.",
    "peer-untrusted": "Ask as root, or as the user who runs the agent.",
    "request-malformed": "Send one JSON object a line.",
    "release-arguments": "Give no argument, or confirm=force.",
    "lease-alive": "Wait for the event's end, or add --force to give it up.",
    "socket-path": "Choose a run_dir whose path is shorter and writable.",
    "socket-path-long": "Choose a shorter run_dir: a socket's path has at most 107 bytes.",
    "socket-in-use": "Stop the other agent of this node first.",
    "socket-unusable": "Give the agent's run_dir to root.",
}

_LINK = {
    "tls-files": "Make them with `gridaware init DIR --node NAME`, and copy the node's folder.",
    "identity-name": "Name a node by letters, digits, - . and _.",
    "identity-files": "Make the folder of certificates writable, and keep ca.pem and ca.key "
    "together.",
    "frame-too-large": "Run the same version of gridaware at both ends.",
    "frame-type": "Run the same version of gridaware at both ends.",
    "frame-malformed": "Run the same version of gridaware at both ends.",
    "frame-direction": "Run the same version of gridaware at both ends.",
    "protocol-version": "Run the same version of gridaware at both ends.",
    "hello-missing": "Point only agents at the agents' port.",
    "welcome-missing": "Point the agent at the agents' port of the controller.",
    "node-identity": "Give each node the certificate that was made for it: `gridaware init DIR "
    "--node NAME`.",
    "superseded": "Run one agent a node: a newer stream of the same node took this one's place.",
    "controller-epoch-old": "Stop the older controller: a newer one has taken over.",
}

_DESK = {
    "line-malformed": "Use gridaware.train of the same version as the agent.",
    "line-unexpected": "Use gridaware.train of the same version as the agent.",
    "too-fast": "Report steps as they happen; more than the limit a second is dropped.",
    "pid-unknown": "Run job and agent in the same PID namespace of one host.",
    "job-mismatch": "Leave GRIDAWARE_JOB_ID and GRIDAWARE_ATTEMPT as they were set for the job.",
    "job-unproven": "Start the job with `gridaware job submit`, so that Ray knows whose process it "
    "is.",
    "word-foreign": "Use gridaware.train of the same version as the agent.",
}

FIXES: Mapping[str, str] = {**_DEVICE, **_AGENT, **_LINK, **_DESK}
"""Code to advice."""
