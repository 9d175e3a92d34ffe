"""What to do about the errors of drivers and meters other than NVML's."""

from collections.abc import Mapping

__all__ = ["FIXES"]

_ALL = {
    "*-options": "Give the options that docs/devices.md lists for this driver or meter.",
    "*-secret": "Make the file readable for whoever runs this, with the secret in its first line.",
}

_HTTP = {
    "http-timeout": "Check that the address is right, or raise call_seconds.",
    "http-unreachable": "Check the address, the port and the network between.",
    "http-answer": "Check that the address is of what the settings say it is.",
}

_VENDORS = {
    "amd-library-missing": "Install ROCm's amd-smi-lib on this node, or name libamd_smi.so in the "
    "driver's option library.",
    "amd-client-missing": "Name the folder of ROCm's own package amdsmi (such as "
    "/opt/rocm/share/amd_smi) in the driver's option package.",
    "zeusd-unreachable": "Start zeusd on this node, or correct the driver's option socket.",
    "zeusd-too-old": "Update zeusd: its /discover must tell the PCI address of each GPU.",
    "zeusd-refused": "Issue a token with the scopes gpu-control and gpu-read, or start zeusd as "
    "root.",
    "zeusd-disabled": "Start zeusd with --enable gpu-control,gpu-read.",
    "zeusd-answer": "Check that the socket is zeusd's, and that it is of a current version.",
    "zeusd-failed": "Look into zeusd's log, and for driver errors in `dmesg`.",
    "redfish-unreachable": "Check the BMC's address, and that its certificate is signed by ca for "
    "server_name.",
    "redfish-refused": "Check username and password_file; setting a limit needs the privilege "
    "ConfigureComponents.",
    "redfish-answer": "Check that the address is a BMC's, and update its firmware.",
    "redfish-failed": "Look into the BMC's own log, or restart the BMC.",
    "mixed-options": "Name each part (nvidia: gridaware.devices.nvml) and its options with its "
    "name and a dot (nvidia.library: ...).",
    "driver-parts": "Mend the parts that the message names; the agent tries again itself.",
    "driver-part-gone": "Look for driver errors in `dmesg`; the agent opens that part again.",
    "driver-failed": "Tell the author of that driver; the other parts work on.",
    "driver-slow": "Look for driver errors in `dmesg`; the agent opens that part again.",
    "driver-reloaded": "Wait: the agent attaches to the new load of the driver itself.",
    "gpu-twice": "Take the GPU out of one of the two parts of the mixed driver.",
}

_NUMBERS = {
    "energy-frozen": "Update the GPU's driver; its energy is integrated from power meanwhile.",
    "energy-absurd": "Update the GPU's driver; its energy is integrated from power meanwhile.",
    "limit-ignored": "Raise the job's least cap above what this GPU obeys, or let it be paused.",
}

_METERS = {
    "ipmi-missing": "Install ipmitool, or name its absolute path in the meter's option tool.",
    "ipmi-failed": "Run `ipmitool dcmi power reading` as root; load ipmi_devintf for /dev/ipmi0.",
    "ipmi-timeout": "Restart the BMC (`ipmitool mc reset cold`), or raise call_seconds.",
    "ipmi-answer": "Run `ipmitool dcmi power reading`; a BMC that measures but says deactivated "
    "needs state: any.",
    "rapl-missing": "Load intel_rapl_common (also for AMD), or name where it is bind-mounted.",
    "rapl-permission": "Read as root: the kernel keeps these counters from others.",
    "rapl-begun": "Wait for the next reading.",
}

FIXES: Mapping[str, str] = {**_ALL, **_HTTP, **_VENDORS, **_NUMBERS, **_METERS}
"""Code to advice."""
