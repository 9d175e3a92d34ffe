"""What to do about the errors of GPUs, of a node's agent, and of its link to control."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_DEVICE = {
    "device-no-permission": "Run the agent as root; setting a limit needs CAP_SYS_ADMIN, reading "
    "does not.",
    "device-out-of-range": "Ask for a limit inside the range that `gridaware gpu list -o json` "
    "shows.",
    "device-not-supported": "Leave this GPU uncapped, or use one whose driver supports it.",
    "device-lost": "Look for Xid errors in `dmesg`, drain the node, and reset or replace the GPU.",
    "device-reset-required": "Drain the node with `gridaware node cordon`, then reset the GPU.",
    "gpu-missing": "Look for driver errors in `dmesg`; the agent looks for the GPU again itself.",
    "gpu-xid-lost": "Power the node off and on, reseat the GPU or have it replaced.",
    "gpu-xid-reset": "Drain the node with `gridaware node cordon`, then reset the GPU "
    "(`nvidia-smi -r`); have it serviced if the Xid comes again.",
    "gpu-xid": "Look the Xid up in NVIDIA's catalog, and at what `dmesg` says beside it.",
    "gpu-xid-job": "Look into the job's own log: it failed, and the GPU is healthy.",
    "clock-lock-lost": "Find what else sets clocks on the node, such as `nvidia-smi -rgc` or DCGM.",
    "clock-lock-not-set": "Look for driver errors in `dmesg`; the agent tries again itself.",
    "device-in-use": "Drain the node; something holds the GPU that must leave first.",
    "device-hung": "Look for driver errors in `dmesg`; the agent restarts its driver child itself.",
    "device-timeout": "Look for driver errors in `dmesg`; the agent tries again itself.",
    "device-insufficient-power": "Connect the GPU's external power cables.",
    "device-irq": "Look for interrupt errors in `dmesg`, and restart the node.",
    "device-inforom": "Have the GPU serviced: its inforom is corrupted.",
    "device-blocked": "Let the agent's container or unit see the GPU devices again: its device "
    "cgroup blocks them.",
    "device-no-memory": "Free memory on the node; the agent tries again itself.",
    "device-no-data": "Wait; the agent tries again itself.",
    "device-not-ready": "Wait; the agent tries again itself.",
    "device-invalid-state": "Look for Xid errors in `dmesg`; the agent tries again itself.",
    "device-unknown-error": "Look for Xid errors in `dmesg`.",
    "device-error": "Look the NVML code up in the driver's documentation, and in `dmesg`.",
    "driver-uninitialised": "Restart the agent; its driver child attaches again.",
    "driver-not-loaded": "Load the NVIDIA kernel driver: `modprobe nvidia`.",
    "driver-library-missing": "Install the NVIDIA driver, which brings libnvidia-ml.so.1.",
    "driver-function-missing": "Update the NVIDIA driver.",
    "driver-version-mismatch": "Reload the kernel driver or restart the node: library and kernel "
    "differ.",
    "driver-unknown-error": "Look for driver errors in `dmesg`.",
    "driver-import": "Name an installed driver module, such as gridaware.devices.nvml.",
    "nvml-client-missing": "Install nvidia-ml-py, and remove the package called pynvml.",
    "nvml-options": "Give only the options that gridaware.devices.nvml knows.",
    "nvml-locked-clocks": "Write the lock as LEAST,GREATEST in MHz, such as 210,1410; leave it out "
    "where the site locks no clocks.",
    "nvml-library-path": "Name the library by an absolute path.",
    "nvml-library-missing": "Install the NVIDIA driver on this node, or name the library in the "
    "driver's options.",
    "frequency-options": "Give only the options that the meter's module names on its page.",
    "frequency-import": "Name an installed module with open_frequency, such as "
    "gridaware.devices.frequency_pmu.",
    "frequency-source": "Check the frequency meter's address, power and network.",
    "frequency-silent": "Check the frequency meter: until it speaks again nothing is fired by it.",
    "frequency-blip": "Leave it, unless it comes often: then compare with another meter.",
    "frequency-trace": "Give a CSV file with a header and t_s,f_hz by line, times growing, that "
    "comes down to the trigger.",
    "frequency-unwatched": "Name a frequency meter in this agent's settings, or take the node out "
    "of the programme.",
    "pmu-frame": "Compare the unit's protocol with IEEE C37.118.2, configuration frame 2.",
    "energy-implausible": "Compare with `nvidia-smi`; a counter like this is not used.",
    "power-implausible": "Compare with `nvidia-smi`; a reading like this is not used.",
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
    "armed-refused": "Run the same version of gridaware at both ends.",
    "trigger-refused": "Nothing: the controller sends what it meant in full. Where a local watch "
    "was refused, see that the controller is connected and arms the programme.",
    "agent-permission": "Ask as root: `sudo gridaware release`.",
    "agent-timeout": "Try again; if it goes on, restart the agent: it finishes from its journal.",
    "agent-unreachable": "Start the agent as root: `gridaware agent --config FILE`.",
    "peer-untrusted": "Ask as root, or as the user who runs the agent.",
    "request-malformed": "Send one JSON object a line.",
    "release-arguments": "Give only confirm, reason, actor and at_once, each one line of text.",
    "release-confirmation": "Type the node's id as `gridaware node list` shows it.",
    "release-reason": "Add --reason TEXT: the programme is told who released it and why.",
    "release-ramp-unconfirmed": "Leave --now out to rise within the ramp, or confirm it: --confirm "
    "NODE_ID --reason TEXT.",
    "release-both": "Release the fleet, or remove one node's agent: not both at once.",
    "releases-unreadable": "Tell the programmes of releases made while no controller was there.",
    "releases-write": "Make room on the disk of the agent's state_dir.",
    "lease-alive": "Wait for the event's end, or opt out of it: --confirm NODE_ID --reason TEXT.",
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
    "relay-identity": "Make the relay's identity with `gridaware init DIR --relay NAME=HOST`, and "
    "let it use the same CA as the controller.",
    "relay-channel": "Run the same version of gridaware at both ends.",
    "relay-listen": "Free the relay's port, or give it another with `listen.port`.",
    "superseded": "Run one agent a node: a newer stream of the same node took this one's place.",
    "agents-address": "Set control.agents_host and agents_port to an address of this host.",
    "agents-port-taken": "Stop what listens there; if it is a controller, release through it.",
    "epoch-unknown": "Give --after-epoch N: the agents' logs name the epoch that they obeyed.",
    "controller-epoch-old": "Stop the older controller. If the store was lost, restore it from a "
    "backup, or start `gridaware serve` with `--after-epoch` and the epoch that the agents obeyed.",
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
