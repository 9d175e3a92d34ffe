/* The virtual library's events: Xids alone, as a test has a GPU report them; part of library.c. */

enum { XID_EVENT = 0x8, EVENT_TIMEOUT = 10, MOST_WATCHED = 64 };

typedef struct {
    int watched;
    nvmlDevice_t gpus[MOST_WATCHED];
    int64_t seen[MOST_WATCHED];
} event_set;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} event_data;

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t gpu, unsigned long long *to) {
    ENTER(gpu);
    *to = XID_EVENT;
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(event_set **to) {
    nvmlReturn_t state = ready(__func__);
    if (state == SUCCESS) *to = calloc(1, sizeof **to);
    return state;
}

/* What was reported before a set watches is not heard in it, as with the real library. */
nvmlReturn_t nvmlDeviceRegisterEvents(
    nvmlDevice_t gpu, unsigned long long types, event_set *set) {
    ENTER(gpu);
    if (types & ~(unsigned long long)XID_EVENT) return NOT_SUPPORTED;
    if (set->watched == MOST_WATCHED) return INVALID_ARGUMENT;
    set->gpus[set->watched] = gpu;
    set->seen[set->watched++] = i64(gpu, GPU_XIDS);
    return SUCCESS;
}

/* A GPU that was lost, or whose calls hang, is heard all the same. */
nvmlReturn_t nvmlEventSetWait_v2(event_set *set, event_data *to, unsigned int milliseconds) {
    for (double left = milliseconds / 1000.0;; left -= 0.05) {
        nvmlReturn_t state = ready(__func__);
        if (state != SUCCESS) return state;
        for (int which = 0; which < set->watched; which++) {
            int64_t xids = i64(set->gpus[which], GPU_XIDS);
            if (xids == set->seen[which]) continue;
            set->seen[which] = xids;
            *to = (event_data){set->gpus[which], XID_EVENT,
                               (unsigned long long)(xids % XID_STRIDE), ~0u, ~0u};
            return SUCCESS;
        }
        if (left <= 0.0) return EVENT_TIMEOUT;
        take(0.05);
    }
}

nvmlReturn_t nvmlEventSetFree(event_set *set) {
    nvmlReturn_t state = ready(__func__);
    if (state == SUCCESS) free(set);
    return state;
}
