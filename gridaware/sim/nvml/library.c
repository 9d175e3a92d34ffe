/* A virtual libnvidia-ml.so.1: the NVML calls as loads and stores on the window of a plant.
 *
 * There is no physics here: every number is a register of gridaware/sim/window.py, whose offsets
 * build.py writes into window.h. What is not defined below is a generated stub that answers
 * NVML_ERROR_NOT_SUPPORTED.
 *
 * GRIDAWARE_SIM_WINDOW        path of the window; unset or absent: the driver is not loaded
 * GRIDAWARE_SIM_NODE          index of this node, default 0
 * GRIDAWARE_SIM_CALL_SECONDS  every call of a device takes at least that long, default 0
 *
 * As with the real library: handles die with a fork and with a reload of the driver, limits out of
 * range are refused and never clamped, and a lost GPU answers GPU_IS_LOST to everything. A test can
 * have any call of a node or of a GPU answer any code, or hang (registers fault_call, error_code and
 * hang_seconds).
 */

#include "core.h"
#include "power.h"
#include "work.h"
#include "events.h"

/* Start-up and system --------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    nvmlReturn_t state = SUCCESS;
    (void)flags;
    pthread_mutex_lock(&guard);
    if (user_pid != getpid()) users = 0;
    if (users == 0) state = attach();
    if (state == SUCCESS && meant(node, NODE_FAULT_CALL, NODE_FAULT_CALL_WIDTH, "nvmlInit"))
        state = (nvmlReturn_t)i64(node, NODE_ERROR_CODE);
    if (state == SUCCESS) {
        users++;
        user_pid = getpid();
    }
    pthread_mutex_unlock(&guard);
    return state;
}

nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t state = UNINITIALIZED;
    pthread_mutex_lock(&guard);
    if (users > 0 && user_pid == getpid()) {
        users--;
        state = SUCCESS;
        if (users == 0 && client_file >= 0) {
            close(client_file);
            client_file = -1;
        }
    }
    pthread_mutex_unlock(&guard);
    return state;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory",
        "No data", "The requested vgpu operation is not available because ECC is enabled",
        "Insufficient Resources", "Requested frequency is not supported",
        "Argument version mismatch", "Deprecated", "Not Ready", "GPU not found", "Invalid State",
        "Reset type not supported"};
    return code < sizeof words / sizeof *words ? words[code] : "Unknown Error";
}

static nvmlReturn_t system_text(
    const char *call, const char *value, char *to, unsigned int length) {
    nvmlReturn_t state = ready(call);
    return state == SUCCESS ? put_text(value, strlen(value), to, length) : state;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned int length) {
    return system_text(__func__, "580.0.0-virtual", to, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned int length) {
    return system_text(__func__, "13.580.0-virtual", to, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 13000;
    return ready(__func__);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

/* Handles and identity -------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlReturn_t state = ready(__func__);
    if (state == SUCCESS) *count = (unsigned int)i64(node, NODE_GPUS);
    return state;
}

/* A handle of a GPU that fell off the bus cannot be had; other faults spare handles, unless a test
 * names the call. */
static nvmlReturn_t hand_out(nvmlDevice_t gpu, const char *call, nvmlDevice_t *to) {
    nvmlDevice_t board = (nvmlDevice_t)((uintptr_t)gpu & ~(uintptr_t)7);
    unsigned int slice;
    nvmlReturn_t state = i64(board, GPU_LOST) ? GPU_IS_LOST : SUCCESS;
    if (state == SUCCESS && board[GPU_FAULT_CALL]) state = enter_any(&board, &slice, call);
    if (state == SUCCESS) *to = gpu;
    return state;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *to) {
    nvmlReturn_t state = ready(__func__);
    if (state != SUCCESS) return state;
    for (int64_t which = 0; which < i64(node, NODE_GPUS); which++) {
        if (i64(gpu_at(which), GPU_INDEX) == (int64_t)index)
            return hand_out(gpu_at(which), __func__, to);
    }
    return INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *to) {
    nvmlReturn_t state = ready(__func__);
    char name[GPU_MIG_UUID_WIDTH];
    if (state != SUCCESS) return state;
    for (int64_t which = 0; which < i64(node, NODE_GPUS); which++) {
        unsigned char *gpu = gpu_at(which);
        if (strncmp((const char *)gpu + GPU_UUID, uuid, GPU_UUID_WIDTH) == 0)
            return hand_out(gpu, __func__, to);
        for (unsigned int slice = 1; slice <= (unsigned int)i64(gpu, GPU_MIG_SLICES); slice++) {
            slice_uuid(gpu, slice, name);
            if (strcmp(name, uuid) == 0) return hand_out(gpu + slice, __func__, to);
        }
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *to) {
    nvmlReturn_t state = ready(__func__);
    if (state != SUCCESS) return state;
    for (int64_t which = 0; which < i64(node, NODE_GPUS); which++) {
        const char *theirs = (const char *)gpu_at(which) + GPU_PCI_BUS_ID;
        if (strncmp(theirs, bus_id, GPU_PCI_BUS_ID_WIDTH) == 0)
            return hand_out(gpu_at(which), __func__, to);
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *to, unsigned int length) {
    unsigned int slice = 0;
    char name[GPU_MODEL_WIDTH + 16];
    ENTER_ANY(gpu, slice);
    snprintf(name, sizeof name, "%.*s%s", (int)GPU_MODEL_WIDTH, (const char *)gpu + GPU_MODEL,
             slice ? " MIG 1g.5gb" : "");
    return put_text(name, strlen(name), to, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *to, unsigned int length) {
    unsigned int slice = 0;
    char name[GPU_MIG_UUID_WIDTH];
    ENTER_ANY(gpu, slice);
    if (slice) {
        slice_uuid(gpu, slice, name);
        return put_text(name, strlen(name), to, length);
    }
    return put_text((const char *)gpu + GPU_UUID, strlen((const char *)gpu + GPU_UUID), to, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, __func__, GPU_INDEX, to);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, __func__, GPU_INDEX, to);
}

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, pci_info *to) {
    ENTER(gpu);
    memset(to, 0, sizeof *to);
    memcpy(to->bus_id, gpu + GPU_PCI_BUS_ID, GPU_PCI_BUS_ID_WIDTH);
    to->bus_id[31] = '\0';
    /* The legacy form has a domain of four digits. */
    snprintf(to->legacy, sizeof to->legacy, "%.12s", to->bus_id + 4);
    to->bus = (unsigned int)strtoul(to->bus_id + 9, NULL, 16);
    to->device_id = 0x10de;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t gpu, int *major, int *minor) {
    ENTER(gpu);
    *major = (int)(i64(gpu, GPU_CAPABILITY) / 10);
    *minor = (int)(i64(gpu, GPU_CAPABILITY) % 10);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t gpu, unsigned int *to) {
    int64_t capability;
    ENTER(gpu);
    capability = i64(gpu, GPU_CAPABILITY);
    *to = capability >= 100 ? 10 : capability >= 90 ? 9 : capability == 89 ? 8
        : capability >= 80 ? 7 : capability == 75 ? 6 : capability >= 70 ? 5 : 4;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t gpu, unsigned int *to) {
    ENTER(gpu);
    *to = 2;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t gpu, unsigned int *to) {
    ENTER(gpu);
    *to = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t gpu, unsigned int *to) {
    ENTER(gpu);
    *to = 0;
    return SUCCESS;
}

#include "stubs.h"
