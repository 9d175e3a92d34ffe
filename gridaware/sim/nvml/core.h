/* Registers of the window, and what every call of a device goes through first. */

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
typedef unsigned char *nvmlDevice_t; /* start of the GPU's slot in the window */

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
    NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25, UNKNOWN = 999
};

enum { SCOPE_GPU = 0, SCOPE_MODULE = 1 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *window;
static unsigned char *node;
static ino_t window_inode;
static int users;
static pid_t user_pid;
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
    close(file);
    if (i64(window, HEADER_MAGIC) != WINDOW_MAGIC || i64(window, HEADER_VERSION) != WINDOW_VERSION
        || index < 0 || index >= i64(window, HEADER_NODES)) {
        window = NULL;
        return DRIVER_NOT_LOADED;
    }
    node = window + i64(window, HEADER_NODES_OFFSET) + index * NODE_SIZE;
    epoch_at_init = i64(node, NODE_DRIVER_EPOCH);
    return i64(node, NODE_DRIVER_GONE) ? DRIVER_NOT_LOADED : SUCCESS;
}

static nvmlReturn_t ready(void) {
    if (users == 0 || user_pid != getpid()) return UNINITIALIZED;
    if (i64(node, NODE_DRIVER_GONE) || i64(node, NODE_DRIVER_EPOCH) != epoch_at_init)
        return DRIVER_NOT_LOADED;
    return SUCCESS;
}

/* What a call of a device answers before it looks at its arguments. */
static nvmlReturn_t reach(nvmlDevice_t gpu) {
    nvmlReturn_t state = ready();
    double waited = 0.0;
    if (state != SUCCESS) return state;
    if (!gpu) return INVALID_ARGUMENT;
    if (call_seconds > 0.0) take(call_seconds);
    while (waited < f64(gpu, GPU_HANG_SECONDS)) {
        double rest = f64(gpu, GPU_HANG_SECONDS) - waited;
        double slice = rest < 0.02 ? rest : 0.02;
        take(slice);
        waited += slice;
    }
    if (i64(gpu, GPU_LOST)) return GPU_IS_LOST;
    return (nvmlReturn_t)i64(gpu, GPU_ERROR_CODE);
}

static unsigned char *gpu_at(int64_t which) {
    return window + i64(window, HEADER_GPUS_OFFSET) + (i64(node, NODE_FIRST_GPU) + which) * GPU_STRIDE;
}

static double enforced_watts(nvmlDevice_t gpu) {
    double limit = fmin(f64(gpu, GPU_REQUESTED_WATTS), f64(gpu, GPU_OUT_OF_BAND_WATTS));
    return fmin(limit, f64(gpu, GPU_GREATEST_WATTS));
}

static nvmlReturn_t text(nvmlDevice_t gpu, size_t at, size_t width, char *to, unsigned int length) {
    nvmlReturn_t state = reach(gpu);
    size_t size = strnlen((const char *)gpu + at, width - 1);
    if (state != SUCCESS) return state;
    if (length <= size) return INSUFFICIENT_SIZE;
    memcpy(to, gpu + at, size);
    to[size] = '\0';
    return SUCCESS;
}
