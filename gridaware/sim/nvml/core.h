/* Registers of the window, and what every call of a device goes through first. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "window.h"

typedef unsigned int nvmlReturn_t;
/* Start of the GPU's slot in the window; of a MIG slice, 1 to 7 bytes further in. */
typedef unsigned char *nvmlDevice_t;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
    NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25
};

enum { SCOPE_GPU = 0, SCOPE_MODULE = 1 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *window;
static unsigned char *node;
static ino_t window_inode;
static int users;
static pid_t user_pid;
static int client_file = -1;
static int64_t epoch_at_init;
static double call_seconds;

static double f64(const unsigned char *slot, size_t at) { return *(const volatile double *)(slot + at); }
static int64_t i64(const unsigned char *slot, size_t at) { return *(const volatile int64_t *)(slot + at); }
static void put_f64(unsigned char *slot, size_t at, double value) { *(volatile double *)(slot + at) = value; }
static void put_i64(unsigned char *slot, size_t at, int64_t value) { *(volatile int64_t *)(slot + at) = value; }
static unsigned int milli(double value) { return (unsigned int)(value * 1000.0 + 0.5); }

static void take(double seconds) {
    /* In slices, so that a test can end an endless hang by clearing the register. */
    struct timespec slice;
    slice.tv_sec = (time_t)seconds;
    slice.tv_nsec = (long)((seconds - (double)slice.tv_sec) * 1e9);
    nanosleep(&slice, NULL);
}

/* A client of the driver is who holds a byte of the window locked, however it ends. */
static void hold_open(int file, long index) {
    struct flock byte = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
    if (client_file >= 0) close(client_file);
    fcntl(file, F_OFD_SETLK, &byte);
    client_file = file;
}

static nvmlReturn_t attach(void) {
    const char *path = getenv("GRIDAWARE_SIM_WINDOW");
    const char *which = getenv("GRIDAWARE_SIM_NODE");
    const char *latency = getenv("GRIDAWARE_SIM_CALL_SECONDS");
    struct stat state;
    int file;
    long index = which ? strtol(which, NULL, 10) : 0;
    call_seconds = latency ? strtod(latency, NULL) : 0.0;
    if (!path || (file = open(path, O_RDWR | O_CLOEXEC)) < 0) return DRIVER_NOT_LOADED;
    if (fstat(file, &state) != 0 || state.st_size < HEADER_SIZE) {
        close(file);
        return DRIVER_NOT_LOADED;
    }
    if (!window || state.st_ino != window_inode) {
        /* An older mapping stays: handles into it may still be about. */
        void *memory = mmap(NULL, (size_t)state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED) {
            close(file);
            return DRIVER_NOT_LOADED;
        }
        window = memory;
        window_inode = state.st_ino;
    }
    if (i64(window, HEADER_MAGIC) != WINDOW_MAGIC || i64(window, HEADER_VERSION) != WINDOW_VERSION
        || index < 0 || index >= i64(window, HEADER_NODES)) {
        window = NULL;
        close(file);
        return DRIVER_NOT_LOADED;
    }
    node = window + i64(window, HEADER_NODES_OFFSET) + index * NODE_SIZE;
    epoch_at_init = i64(node, NODE_DRIVER_EPOCH);
    if (i64(node, NODE_DRIVER_GONE)) {
        close(file);
        return DRIVER_NOT_LOADED;
    }
    hold_open(file, index);
    return SUCCESS;
}

/* Whether a fault written into a slot is meant for this call: all of them, unless it names one. */
static int meant(const unsigned char *slot, size_t call_at, size_t width, const char *call) {
    return !slot[call_at] || strncmp((const char *)slot + call_at, call, width) == 0;
}

/* What a call of the driver as a whole answers before it does anything. */
static nvmlReturn_t ready(const char *call) {
    if (users == 0 || user_pid != getpid()) return UNINITIALIZED;
    if (i64(node, NODE_DRIVER_GONE) || i64(node, NODE_DRIVER_EPOCH) != epoch_at_init)
        return DRIVER_NOT_LOADED;
    if (meant(node, NODE_FAULT_CALL, NODE_FAULT_CALL_WIDTH, call))
        return (nvmlReturn_t)i64(node, NODE_ERROR_CODE);
    return SUCCESS;
}

/* What a call of a device answers before it looks at its arguments. A slice becomes its board. */
static nvmlReturn_t enter_any(nvmlDevice_t *device, unsigned int *slice, const char *call) {
    nvmlReturn_t state = ready(call);
    nvmlDevice_t gpu = (nvmlDevice_t)((uintptr_t)*device & ~(uintptr_t)7);
    double waited = 0.0;
    if (state != SUCCESS) return state;
    if (!gpu) return INVALID_ARGUMENT;
    *slice = (unsigned int)(*device - gpu);
    *device = gpu;
    if (call_seconds > 0.0) take(call_seconds);
    if (meant(gpu, GPU_FAULT_CALL, GPU_FAULT_CALL_WIDTH, call)) {
        while (waited < f64(gpu, GPU_HANG_SECONDS)) {
            double rest = f64(gpu, GPU_HANG_SECONDS) - waited;
            double part = rest < 0.02 ? rest : 0.02;
            take(part);
            waited += part;
        }
        state = (nvmlReturn_t)i64(gpu, GPU_ERROR_CODE);
    }
    return i64(gpu, GPU_LOST) ? GPU_IS_LOST : state;
}

/* Most calls are of a board: a slice has no power, no limit and no counter of its own. */
static nvmlReturn_t enter(nvmlDevice_t *device, const char *call) {
    unsigned int slice = 0;
    nvmlReturn_t state = enter_any(device, &slice, call);
    return state == SUCCESS && slice ? NOT_SUPPORTED : state;
}

#define ENTER(device) \
    do { \
        nvmlReturn_t entered = enter(&(device), __func__); \
        if (entered != SUCCESS) return entered; \
    } while (0)

#define ENTER_ANY(device, slice) \
    do { \
        nvmlReturn_t entered = enter_any(&(device), &(slice), __func__); \
        if (entered != SUCCESS) return entered; \
    } while (0)

static unsigned char *gpu_at(int64_t which) {
    return window + i64(window, HEADER_GPUS_OFFSET) + (i64(node, NODE_FIRST_GPU) + which) * GPU_STRIDE;
}

static double enforced_watts(nvmlDevice_t gpu) {
    double limit = fmin(f64(gpu, GPU_REQUESTED_WATTS), f64(gpu, GPU_OUT_OF_BAND_WATTS));
    return fmin(limit, f64(gpu, GPU_GREATEST_WATTS));
}

/* Text, with its end, into a caller's buffer. */
static nvmlReturn_t put_text(const char *from, size_t size, char *to, unsigned int length) {
    if (length <= size) return INSUFFICIENT_SIZE;
    memcpy(to, from, size);
    to[size] = '\0';
    return SUCCESS;
}

/* A small whole number that stands in a register. */
static nvmlReturn_t small(nvmlDevice_t gpu, const char *call, size_t at, unsigned int *to) {
    nvmlReturn_t state = enter(&gpu, call);
    if (state == SUCCESS) *to = (unsigned int)i64(gpu, at);
    return state;
}

/* The UUID of a MIG slice, 1 to 7: it differs from its siblings' in the last digit. */
static void slice_uuid(const unsigned char *gpu, unsigned int slice, char *to) {
    size_t size = strnlen((const char *)gpu + GPU_MIG_UUID, GPU_MIG_UUID_WIDTH - 1);
    memcpy(to, gpu + GPU_MIG_UUID, size);
    to[size] = '\0';
    if (size) to[size - 1] = (char)('0' + slice);
}
