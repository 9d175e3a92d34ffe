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
 * range are refused and never clamped, and a lost GPU answers GPU_IS_LOST to everything.
 */

#include "core.h"

/* Start-up and system --------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    nvmlReturn_t state = SUCCESS;
    (void)flags;
    pthread_mutex_lock(&guard);
    if (user_pid != getpid()) users = 0;
    if (users == 0) state = attach();
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
    }
    pthread_mutex_unlock(&guard);
    return state;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t system_text(const char *value, char *to, unsigned int length) {
    nvmlReturn_t state = ready();
    if (state != SUCCESS) return state;
    return snprintf(to, length, "%s", value) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned int length) {
    return system_text("580.0.0-virtual", to, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned int length) {
    return system_text("13.580.0-virtual", to, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 13000;
    return ready();
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

/* Handles and identity -------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlReturn_t state = ready();
    if (state == SUCCESS) *count = (unsigned int)i64(node, NODE_GPUS);
    return state;
}

/* A handle of a GPU that fell off the bus cannot be had. */
static nvmlReturn_t hand_out(nvmlDevice_t gpu, nvmlDevice_t *to) {
    if (i64(gpu, GPU_LOST)) return GPU_IS_LOST;
    *to = gpu;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *to) {
    nvmlReturn_t state = ready();
    if (state != SUCCESS) return state;
    for (int64_t which = 0; which < i64(node, NODE_GPUS); which++) {
        if (i64(gpu_at(which), GPU_INDEX) == (int64_t)index) return hand_out(gpu_at(which), to);
    }
    return INVALID_ARGUMENT;
}

static nvmlReturn_t handle_by(size_t at, size_t width, const char *value, nvmlDevice_t *to) {
    nvmlReturn_t state = ready();
    if (state != SUCCESS) return state;
    for (int64_t which = 0; which < i64(node, NODE_GPUS); which++) {
        if (strncmp((const char *)gpu_at(which) + at, value, width) == 0)
            return hand_out(gpu_at(which), to);
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *to) {
    return handle_by(GPU_UUID, GPU_UUID_WIDTH, uuid, to);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *to) {
    return handle_by(GPU_PCI_BUS_ID, GPU_PCI_BUS_ID_WIDTH, bus_id, to);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t gpu, unsigned int *mig) {
    *mig = 0;
    return reach(gpu);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *to, unsigned int length) {
    return text(gpu, GPU_MODEL, GPU_MODEL_WIDTH, to, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *to, unsigned int length) {
    return text(gpu, GPU_UUID, GPU_UUID_WIDTH, to, length);
}

static nvmlReturn_t small(nvmlDevice_t gpu, unsigned int value, unsigned int *to) {
    nvmlReturn_t state = reach(gpu);
    if (state == SUCCESS) *to = value;
    return state;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, (unsigned int)i64(gpu, GPU_INDEX), to);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned int *to) {
    return nvmlDeviceGetIndex(gpu, to);
}

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, pci_info *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
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
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    *major = (int)(i64(gpu, GPU_CAPABILITY) / 10);
    *minor = (int)(i64(gpu, GPU_CAPABILITY) % 10);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t gpu, unsigned int *to) {
    int64_t capability = i64(gpu, GPU_CAPABILITY);
    unsigned int architecture = capability >= 100 ? 10 : capability >= 90 ? 9 : capability == 89 ? 8
        : capability >= 80 ? 7 : capability == 75 ? 6 : capability >= 70 ? 5 : 4;
    return small(gpu, architecture, to);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t gpu, unsigned int *to) { return small(gpu, 2, to); }
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t gpu, unsigned int *to) { return small(gpu, 0, to); }
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t gpu, unsigned int *to) { return small(gpu, 0, to); }

/* Power ----------------------------------------------------------------------------------- */

static int wrong_scope(nvmlDevice_t gpu, unsigned int scope) {
    return scope != (i64(gpu, GPU_MODULE_SCOPE) ? SCOPE_MODULE : SCOPE_GPU);
}

/* A power number without a scope of its own is of GPU scope, which a module does not have. */
static nvmlReturn_t power(nvmlDevice_t gpu, double watts, unsigned int *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    if (wrong_scope(gpu, SCOPE_GPU)) return NOT_SUPPORTED;
    *to = milli(watts);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, f64(gpu, GPU_AVERAGE_WATTS), to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, 1, to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, f64(gpu, GPU_REQUESTED_WATTS), to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, f64(gpu, GPU_DEFAULT_WATTS), to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(
    nvmlDevice_t gpu, unsigned int *least, unsigned int *greatest) {
    nvmlReturn_t state = power(gpu, f64(gpu, GPU_LEAST_WATTS), least);
    if (state == SUCCESS) *greatest = milli(f64(gpu, GPU_GREATEST_WATTS));
    return state;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, enforced_watts(gpu), to);
}

static nvmlReturn_t set_limit(nvmlDevice_t gpu, unsigned int scope, unsigned int milliwatts) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    if (wrong_scope(gpu, scope)) return NOT_SUPPORTED;
    if (milliwatts < milli(f64(gpu, GPU_LEAST_WATTS))
        || milliwatts > milli(f64(gpu, GPU_GREATEST_WATTS)))
        return INVALID_ARGUMENT;
    put_f64(gpu, GPU_REQUESTED_WATTS, milliwatts / 1000.0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t gpu, unsigned int milliwatts) {
    return set_limit(gpu, SCOPE_GPU, milliwatts);
}

typedef struct {
    unsigned int version, scope, milliwatts;
} power_value;

nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t gpu, const power_value *value) {
    if (value->version != 0x0200000Cu) return VERSION_MISMATCH;
    return set_limit(gpu, value->scope, value->milliwatts);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t gpu, unsigned long long *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    if (i64(gpu, GPU_ENERGY_UNSUPPORTED)) return NOT_SUPPORTED;
    *to = (unsigned long long)i64(gpu, GPU_ENERGY_MILLIJOULES);
    return SUCCESS;
}

typedef struct {
    unsigned int field, scope;
    int64_t timestamp, latency;
    unsigned int value_type;
    nvmlReturn_t result;
    union {
        double d;
        unsigned int ui;
        unsigned long long ull;
    } value;
} field_value;

static nvmlReturn_t fill(nvmlDevice_t gpu, field_value *to) {
    double watts;
    if (to->field == 83) {
        to->value_type = 3;
        return nvmlDeviceGetTotalEnergyConsumption(gpu, &to->value.ull);
    }
    switch (to->field) {
    case 185: watts = f64(gpu, GPU_AVERAGE_WATTS); break;
    case 186: watts = f64(gpu, GPU_INSTANT_WATTS); break;
    case 187: watts = f64(gpu, GPU_LEAST_WATTS); break;
    case 188: watts = f64(gpu, GPU_GREATEST_WATTS); break;
    case 189: watts = f64(gpu, GPU_DEFAULT_WATTS); break;
    case 190: watts = enforced_watts(gpu); break;
    case 192: watts = f64(gpu, GPU_REQUESTED_WATTS); break;
    default: return NOT_SUPPORTED;
    }
    if (wrong_scope(gpu, to->scope)) return NOT_SUPPORTED;
    if (to->field == 186 && i64(gpu, GPU_INSTANT_UNSUPPORTED)) return NOT_SUPPORTED;
    to->value_type = 1;
    to->value.ui = milli(watts);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, field_value *values) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    for (int which = 0; which < count; which++) values[which].result = fill(gpu, &values[which]);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t gpu, unsigned long long *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    *to = (i64(gpu, GPU_CAP_BINDS) ? 0x4u : 0u) | (f64(gpu, GPU_THROUGHPUT) > 0.0 ? 0u : 0x1u);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t gpu, unsigned long long *to) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, to);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, (unsigned int)i64(gpu, GPU_PERSISTENCE), to);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t gpu, unsigned int mode) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    put_i64(gpu, GPU_PERSISTENCE, mode ? 1 : 0);
    return SUCCESS;
}

/* Work ------------------------------------------------------------------------------------ */

typedef struct {
    unsigned int pid;
    unsigned long long used_memory;
    unsigned int gpu_instance, compute_instance;
} process_info;

static unsigned int count_processes(nvmlDevice_t gpu, process_info *to, unsigned int room) {
    unsigned int found = 0;
    for (int which = 0; which < GPU_LOADS; which++) {
        const unsigned char *load = gpu + LOADS_OFFSET + which * LOAD_SIZE;
        if (i64(load, LOAD_STATE) != LOAD_ALIVE) continue;
        if (to && found < room) {
            to[found].pid = (unsigned int)i64(load, LOAD_PID);
            to[found].used_memory = (unsigned long long)i64(gpu, GPU_MEMORY_BYTES) / GPU_LOADS;
            to[found].gpu_instance = to[found].compute_instance = 0xffffffffu;
        }
        found++;
    }
    return found;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t gpu, unsigned int *count, process_info *to) {
    nvmlReturn_t state = reach(gpu);
    unsigned int room = *count;
    if (state != SUCCESS) return state;
    *count = count_processes(gpu, to, room);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t gpu, unsigned int *count, process_info *to) {
    return nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, to);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t gpu, unsigned int *count, process_info *to) {
    (void)to;
    *count = 0;
    return reach(gpu);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t gpu, unsigned int *count, process_info *to) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(gpu, count, to);
}

typedef struct {
    unsigned long long total, free, used;
} memory_info;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, memory_info *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    to->total = (unsigned long long)i64(gpu, GPU_MEMORY_BYTES);
    to->used = to->total / GPU_LOADS * count_processes(gpu, NULL, 0);
    to->free = to->total - to->used;
    return SUCCESS;
}

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_info_v2;

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, memory_info_v2 *to) {
    memory_info simple;
    nvmlReturn_t state = nvmlDeviceGetMemoryInfo(gpu, &simple);
    if (state != SUCCESS) return state;
    to->total = simple.total;
    to->reserved = 0;
    to->free = simple.free;
    to->used = simple.used;
    return SUCCESS;
}

typedef struct {
    unsigned int gpu, memory;
} utilisation;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, utilisation *to) {
    nvmlReturn_t state = reach(gpu);
    if (state != SUCCESS) return state;
    to->gpu = f64(gpu, GPU_THROUGHPUT) > 0.0 ? 100 : 0;
    to->memory = to->gpu / 2;
    return SUCCESS;
}

/* A virtual GPU has no temperature; clients that insist on one get room temperature. */
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, unsigned int sensor, unsigned int *to) {
    (void)sensor;
    return small(gpu, 25, to);
}

typedef struct {
    unsigned int version, sensor;
    int celsius;
} temperature;

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, temperature *to) {
    to->celsius = 25;
    return reach(gpu);
}

#include "stubs.h"
