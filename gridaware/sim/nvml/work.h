/* The virtual library's processes, memory and slices; part of library.c. */

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
    unsigned int room = *count;
    ENTER(gpu);
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
    ENTER(gpu);
    *count = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t gpu, unsigned int *count, process_info *to) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(gpu, count, to);
}

typedef struct {
    unsigned long long total, free, used;
} memory_info;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, memory_info *to) {
    ENTER(gpu);
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
    ENTER(gpu);
    to->gpu = f64(gpu, GPU_THROUGHPUT) > 0.0 ? 100 : 0;
    to->memory = to->gpu / 2;
    return SUCCESS;
}

/* A virtual GPU has no temperature; clients that insist on one get room temperature. */
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, unsigned int sensor, unsigned int *to) {
    (void)sensor;
    ENTER(gpu);
    *to = 25;
    return SUCCESS;
}

typedef struct {
    unsigned int version, sensor;
    int celsius;
} temperature;

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, temperature *to) {
    ENTER(gpu);
    to->celsius = 25;
    return SUCCESS;
}

/* Multi-instance GPU: slices that have memory and processes, and no power of their own ------ */

enum { MOST_SLICES = 7 };

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned int *current, unsigned int *pending) {
    ENTER(gpu);
    if (i64(gpu, GPU_CAPABILITY) < 80) return NOT_SUPPORTED;
    *current = *pending = i64(gpu, GPU_MIG_SLICES) > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, unsigned int *to) {
    ENTER(gpu);
    *to = i64(gpu, GPU_CAPABILITY) < 80 ? 0 : MOST_SLICES;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(
    nvmlDevice_t gpu, unsigned int index, nvmlDevice_t *to) {
    ENTER(gpu);
    if ((int64_t)index >= i64(gpu, GPU_MIG_SLICES)) return NOT_FOUND;
    *to = gpu + 1 + index;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t gpu, unsigned int *to) {
    unsigned int slice = 0;
    ENTER_ANY(gpu, slice);
    *to = slice > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t gpu, nvmlDevice_t *to) {
    unsigned int slice = 0;
    ENTER_ANY(gpu, slice);
    if (!slice) return INVALID_ARGUMENT;
    *to = gpu;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t gpu, unsigned int *to) {
    unsigned int slice = 0;
    ENTER_ANY(gpu, slice);
    if (!slice) return NOT_SUPPORTED;
    *to = slice;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t gpu, unsigned int *to) {
    unsigned int slice = 0;
    ENTER_ANY(gpu, slice);
    if (!slice) return NOT_SUPPORTED;
    *to = 0;
    return SUCCESS;
}
