"""Looks at one real NVIDIA GPU for under four minutes and writes what it saw into one JSON file.

    python3 tests/live/check_gpu.py --out gpu.json               # reads only
    sudo python3 tests/live/check_gpu.py --out gpu.json --allow-set

It needs a plain checkout and nvidia-ml-py, nothing else: no set-up, no CUDA toolkit. It asks
through gridaware's own NVML driver, so it tests that driver, too.

Without ``--allow-set`` no limit, no clock and no mode is written, not even the value that stands
already. With it, limits are changed and given back: by this process, and if it is killed by a guard
process that waits for its end and then restores what was found.

What it looks at: the state of the board; how long calls take; at idle and under a small compute
load (a PTX kernel through ``libcuda.so.1``, left out with the reason where there is none) the
instantaneous against the averaged power, their refresh periods, and the energy counter against
the integral. With ``--allow-set``: set and read back, the step response down and up at 50 Hz, a
clock lock, and that limits come back after SIGKILL.
"""

import argparse
import ctypes
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gridaware.clock import SystemClock
from gridaware.devices.nvml import open_driver
from gridaware.domain.errors import DeviceError, GridawareError

CLOCK = SystemClock()
SAMPLE_HZ = 50.0
NO_CUDA = 3
BURN_PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p<2>;
    .reg .f32 %f<10>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    cvt.rn.f32.u32 %f1, %r1;
    mov.f32 %f2, 0f3F7FFFFE;
    mov.f32 %f3, 0f3A83126F;
    mov.f32 %f4, %f1;
    mov.f32 %f5, %f1;
    mov.f32 %f6, %f1;
    mov.f32 %f7, %f1;
    ld.param.u32 %r5, [rounds];
AGAIN:
    fma.rn.f32 %f1, %f1, %f2, %f3;
    fma.rn.f32 %f4, %f4, %f2, %f3;
    fma.rn.f32 %f5, %f5, %f2, %f3;
    fma.rn.f32 %f6, %f6, %f2, %f3;
    fma.rn.f32 %f7, %f7, %f2, %f3;
    fma.rn.f32 %f1, %f1, %f2, %f3;
    fma.rn.f32 %f4, %f4, %f2, %f3;
    fma.rn.f32 %f5, %f5, %f2, %f3;
    sub.u32 %r5, %r5, 1;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra AGAIN;
    add.f32 %f8, %f1, %f4;
    add.f32 %f8, %f8, %f5;
    add.f32 %f8, %f8, %f6;
    add.f32 %f8, %f8, %f7;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f8;
    ret;
}
\0"""


# --------------------------------------------------------------------------- numbers


def spread(values):
    """Median, 99th percentile and extremes of some numbers."""
    ordered = sorted(values)
    if not ordered:
        return None
    return {
        "n": len(ordered),
        "median": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "least": ordered[0],
        "greatest": ordered[-1],
    }


def refresh_seconds(times, values):
    """Median time between two changes of what a sensor shows; None where it changed too rarely."""
    changes = [
        t for t, before, now in zip(times[1:], values, values[1:], strict=False) if before != now
    ]
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    return statistics.median(gaps) if len(gaps) >= 5 else None


def integral_joules(times, watts):
    """Trapezes under the samples."""
    points = pairwise(zip(times, watts, strict=True))
    return sum((t2 - t1) * (w1 + w2) / 2 for (t1, w1), (t2, w2) in points)


def step_numbers(times, watts, before_watts):
    """When half and 95 % of the way were covered, and by how much power overshot its end."""
    settled = statistics.fmean(watts[-max(1, len(watts) // 4) :])
    way = settled - before_watts
    if abs(way) < 5.0:
        return {"settled_watts": settled, "moved": False}
    shares = [(w - before_watts) / way for w in watts]
    crossed = {
        name: next((t for t, s in zip(times, shares, strict=True) if s >= share), None)
        for name, share in (("t50_seconds", 0.5), ("t95_seconds", 0.95))
    }
    return {
        "settled_watts": settled,
        "moved": True,
        "overshoot_share": max(0.0, max(shares) - 1.0),
        **crossed,
    }


# --------------------------------------------------------------------------- reading


class Gpu:
    """One GPU, through gridaware's driver."""

    def __init__(self, driver, gpu_id):
        self.driver, self.gpu_id = driver, gpu_id

    def ask(self, name, *arguments):
        """What the driver answers, or the error as a dict."""
        try:
            return getattr(self.driver, name)(self.gpu_id, *arguments)
        except DeviceError as error:
            return {"error": error.code, "message": error.message}


def plain(value):
    """As JSON can hold it."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value if isinstance(value, (dict, str, int, float, bool, type(None))) else str(value)


def board(gpu, identity, nvml):
    """Everything that the driver says of it."""
    names = (
        "limit_range",
        "requested_limit_watts",
        "enforced_limit_watts",
        "clock_range",
        "clock_mhz",
        "board_state",
        "cap_binds",
        "power_watts",
        "energy_joules",
        "processes",
    )
    found = {name: plain(gpu.ask(name)) for name in names}
    return {
        "gpu_id": gpu.gpu_id,
        "index": identity.index,
        "model": identity.model,
        "boundary": gpu.driver.boundary,
        "driver_version": str(nvml.nvmlSystemGetDriverVersion()),
        "nvml_version": str(nvml.nvmlSystemGetNVMLVersion()),
        **found,
    }


def latencies(gpu, seconds_each=1.5):
    """Microseconds that each call took, first and later."""
    found = {}
    for name in (
        "power_watts",
        "energy_joules",
        "requested_limit_watts",
        "enforced_limit_watts",
        "cap_binds",
        "clock_mhz",
        "processes",
    ):
        taken, until = [], CLOCK.monotonic_seconds() + seconds_each
        while len(taken) < 500 and CLOCK.monotonic_seconds() < until:
            began = CLOCK.monotonic_seconds()
            answer = gpu.ask(name)
            taken.append(1e6 * (CLOCK.monotonic_seconds() - began))
            if isinstance(answer, dict):
                found[name] = answer
                break
        else:
            found[name] = {"first": taken[0], **spread(taken[1:])}
    return found


def watch(gpu, seconds):
    """Instant and averaged power and the counter, at 50 Hz, and what follows from them."""
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.gpu_id)
    times, instant, average, joules = [], [], [], []
    began = CLOCK.monotonic_seconds()
    while (now := CLOCK.monotonic_seconds()) - began < seconds:
        reading, energy = gpu.ask("power_watts"), gpu.ask("energy_joules")
        if not isinstance(reading, dict):
            times.append(now - began)
            instant.append(reading.watts)
            joules.append(None if isinstance(energy, dict) else energy.joules)
            try:
                average.append(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
            except pynvml.NVMLError:
                average.append(None)
        time.sleep(max(0.0, 1 / SAMPLE_HZ - (CLOCK.monotonic_seconds() - now)))
    if len(times) < 10:
        return {"error": "too-few-readings", "n": len(times)}
    found = {
        "seconds": times[-1],
        "method": plain(reading.method.value) if not isinstance(reading, dict) else None,
        "instant_watts": {
            "mean": statistics.fmean(instant),
            "sd": statistics.pstdev(instant),
            **spread(instant),
        },
        "instant_refresh_seconds": refresh_seconds(times, instant),
        "integral_joules": integral_joules(times, instant),
    }
    if None not in average:
        mean = statistics.fmean(average)
        found["average_watts"] = {"mean": mean, "sd": statistics.pstdev(average), **spread(average)}
        found["average_refresh_seconds"] = refresh_seconds(times, average)
        found["instant_over_average"] = found["instant_watts"]["mean"] / mean if mean else None
    if None not in joules:
        counted = joules[-1] - joules[0]
        found["counter_joules"] = counted
        found["counter_refresh_seconds"] = refresh_seconds(times, joules)
        integral = found["integral_joules"]
        found["counter_over_integral"] = counted / integral if integral else None
    return found


# --------------------------------------------------------------------------- the load


def check(code, call):
    if code:
        raise OSError(f"{call} answers {code}")


def burn(seconds):
    """Keep one GPU busy with multiplications, through the CUDA driver alone."""
    cuda = ctypes.CDLL("libcuda.so.1")
    check(cuda.cuInit(0), "cuInit")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), BURN_PTX), "cuModuleLoadData")
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"burn"), "cuModuleGetFunction")
    processors = ctypes.c_int()
    check(cuda.cuDeviceGetAttribute(ctypes.byref(processors), 16, device), "cuDeviceGetAttribute")
    blocks, threads = 8 * processors.value, 256
    memory, rounds = ctypes.c_uint64(), ctypes.c_uint32(20_000)
    check(
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * blocks * threads)),
        "cuMemAlloc",
    )
    arguments = (ctypes.c_void_p * 2)(
        ctypes.cast(ctypes.byref(memory), ctypes.c_void_p),
        ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p),
    )
    print("burning", flush=True)
    until, parent = CLOCK.monotonic_seconds() + seconds, os.getppid()
    while CLOCK.monotonic_seconds() < until and os.getppid() == parent:
        for _ in range(4):
            check(
                cuda.cuLaunchKernel(
                    function, blocks, 1, 1, threads, 1, 1, 0, None, arguments, None
                ),
                "cuLaunchKernel",
            )
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")


class Load:
    """A process that burns, while the block lasts."""

    def __init__(self, gpu_id, seconds):
        self._command = [sys.executable, __file__, "--burn", str(seconds)]
        self._environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu_id}
        self.reason = None

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout.readline().strip() != "burning":
            _, said = self._process.communicate()
            self.reason = (said.strip().splitlines() or ["it ended at once"])[-1]
        return self

    def __exit__(self, *_error):
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


# --------------------------------------------------------------------------- setting


class Guard:
    """A process that gives limit and clocks back once this one has ended, however it ended."""

    def __init__(self, options, gpu_id, found_watts):
        arguments = ["--guard", f"{gpu_id}={found_watts!r}", *library_of(options)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._process.stdout.readline().strip() != "guarding":
            raise SystemExit("the guard does not start: nothing is changed")

    def dismiss(self):
        """Let it restore now; returns once it has."""
        self._process.stdin.close()
        return self._process.wait(30)


def guard(driver, order):
    """Wait for the end of whoever started this, then restore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gpu_id, _, watts = order.partition("=")
    print("guarding", flush=True)
    sys.stdin.read()
    try:
        driver.set_limit_watts(gpu_id, float(watts))
    finally:
        try:
            driver.unlock_clocks(gpu_id)
        except DeviceError as error:
            print(f"clocks: {error}", file=sys.stderr)


def sample_power(gpu, seconds):
    """(times, watts) at 50 Hz."""
    times, watts = [], []
    began = CLOCK.monotonic_seconds()
    while (now := CLOCK.monotonic_seconds()) - began < seconds:
        reading = gpu.ask("power_watts")
        if not isinstance(reading, dict):
            times.append(now - began)
            watts.append(reading.watts)
        time.sleep(max(0.0, 1 / SAMPLE_HZ - (CLOCK.monotonic_seconds() - now)))
    return times, watts


def change(gpu, what, seconds):
    """Do one change and follow the power; how long the call and the read-back took."""
    before = statistics.fmean(sample_power(gpu, 0.5)[1])
    began = CLOCK.monotonic_seconds()
    answer = what()
    set_at = CLOCK.monotonic_seconds()
    enforced = gpu.ask("enforced_limit_watts")
    read_at = CLOCK.monotonic_seconds()
    times, watts = sample_power(gpu, seconds)
    return {
        "error": answer if isinstance(answer, dict) else None,
        "set_ms": 1000 * (set_at - began),
        "read_back_ms": 1000 * (read_at - set_at),
        "enforced_watts": enforced,
        "before_watts": before,
        "times_seconds": [round(t, 4) for t in times],
        "watts": [round(w, 2) for w in watts],
        **step_numbers(times, watts, before),
    }


def steps(gpu, scale):
    """Limits down and up, then a clock lock on and off."""
    limits = gpu.driver.limit_range(gpu.gpu_id)
    found = gpu.driver.requested_limit_watts(gpu.gpu_id)
    draw = statistics.fmean(sample_power(gpu, 1.0)[1])
    low = limits.clamp(float(round(0.6 * min(draw, found))))
    rounds = []
    for _ in range(2):
        rounds.append(
            {
                "down": change(gpu, lambda: gpu.ask("set_limit_watts", low), 4 * scale),
                "up": change(gpu, lambda: gpu.ask("set_limit_watts", found), 4 * scale),
            }
        )
    clocks = gpu.ask("clock_range")
    locked = None
    if not isinstance(clocks, dict):
        most = clocks.least_mhz + 0.6 * (clocks.greatest_mhz - clocks.least_mhz)
        locked = {
            "most_mhz": most,
            "down": change(gpu, lambda: gpu.ask("lock_clocks", most), 4 * scale),
            "clock_mhz": gpu.ask("clock_mhz"),
            "up": change(gpu, lambda: gpu.ask("unlock_clocks"), 4 * scale),
        }
    again = []
    for _ in range(20):
        began = CLOCK.monotonic_seconds()
        gpu.ask("set_limit_watts", found)
        again.append(1000 * (CLOCK.monotonic_seconds() - began))
    return {
        "low_watts": low,
        "found_watts": found,
        "rounds": rounds,
        "clock_lock": locked,
        "set_ms": spread(again),
    }


def killed(options, gpu, found_watts, low_watts):
    """A process that lowered the limit is killed: does the limit come back?"""
    setter = subprocess.Popen(
        [sys.executable, __file__, "--hold", f"{gpu.gpu_id}={low_watts!r}", *library_of(options)],
        stdout=subprocess.PIPE,
        text=True,
    )
    said = setter.stdout.readline().strip()
    lowered = gpu.ask("requested_limit_watts")
    began = CLOCK.monotonic_seconds()
    setter.kill()
    setter.communicate()
    while (
        gpu.ask("requested_limit_watts") != found_watts and CLOCK.monotonic_seconds() - began < 10
    ):
        time.sleep(0.01)
    return {
        "held": said == "holding" and lowered == low_watts,
        "lowered_watts": lowered,
        "restored": gpu.ask("requested_limit_watts") == found_watts,
        "seconds": CLOCK.monotonic_seconds() - began,
    }


def hold(options, driver, order):
    """Lower a limit under a guard and wait to be killed."""
    gpu_id, _, watts = order.partition("=")
    keeper = Guard(options, gpu_id, driver.requested_limit_watts(gpu_id))
    driver.set_limit_watts(gpu_id, float(watts))
    print("holding", flush=True)
    time.sleep(600)
    keeper.dismiss()


def try_setting(options, gpu):
    """Everything that changes a limit; the found one stands again at the end."""
    found = gpu.driver.requested_limit_watts(gpu.gpu_id)
    keeper = Guard(options, gpu.gpu_id, found)
    try:
        if not gpu.driver.can_set(gpu.gpu_id):
            return {"error": "device-no-permission"}
        stepped = steps(gpu, options.scale)
        after_kill = killed(options, gpu, found, stepped["low_watts"])
        return {**stepped, "after_sigkill": after_kill}
    finally:
        keeper.dismiss()
        stands = gpu.ask("requested_limit_watts")
        if stands != found:
            print(f"WARNING: {stands} W stand where {found} W were found", file=sys.stderr)


# --------------------------------------------------------------------------- all of it


def library_of(options):
    return ["--library", options.library] if options.library else []


def choose(driver, wanted):
    gpus = list(driver.gpus())
    for gpu in gpus:
        if wanted in {str(gpu.index), gpu.gpu_id}:
            return gpu
    raise SystemExit(f"no GPU {wanted}; there are {[gpu.gpu_id for gpu in gpus]}")


def report(options, driver):
    import pynvml

    began = CLOCK.monotonic_seconds()
    identity = choose(driver, options.gpu)
    gpu = Gpu(driver, identity.gpu_id)
    found = {
        "schema": "gridaware-check-gpu/1",
        "at": CLOCK.wall().isoformat(),
        "host": {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "root": os.geteuid() == 0,
        },
        "allow_set": options.allow_set,
        "board": board(gpu, identity, pynvml),
        "latency_us": latencies(gpu, 1.5 * options.scale),
        "idle": watch(gpu, 15 * options.scale),
    }
    with Load(gpu.gpu_id, 200) as load:
        found["load"] = {"ran": load.reason is None, "reason": load.reason}
        time.sleep(3 * options.scale)
        found["loaded"] = watch(gpu, 30 * options.scale)
        found["loaded_latency_us"] = latencies(gpu, 1.0 * options.scale)
        found["set"] = try_setting(options, gpu) if options.allow_set else None
    found["elapsed_seconds"] = CLOCK.monotonic_seconds() - began
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", default="0", help="index or UUID")
    parser.add_argument("--out", type=Path, default=Path("check-gpu.json"))
    parser.add_argument(
        "--allow-set", action="store_true", help="change limits, and give them back"
    )
    parser.add_argument("--library", help="absolute path of libnvidia-ml.so.1")
    parser.add_argument("--scale", type=float, default=1.0, help="of every stretch of time")
    parser.add_argument("--burn", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--guard", help=argparse.SUPPRESS)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.burn is not None:
        try:
            burn(options.burn)
        except (OSError, AttributeError) as error:
            print(error, file=sys.stderr)
            return NO_CUDA
        return 0
    try:
        driver = open_driver({"library": options.library} if options.library else {})
        driver.open()
        if options.guard is not None:
            guard(driver, options.guard)
        elif options.hold is not None:
            hold(options, driver, options.hold)
        else:
            found = report(options, driver)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{options.out}: {found['elapsed_seconds']:.0f} s")
    except GridawareError as error:
        print(f"error[{error.code}]: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
