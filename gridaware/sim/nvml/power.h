/* The virtual library's power, clocks and profiles; part of library.c. */

/* Power ----------------------------------------------------------------------------------- */

static int wrong_scope(nvmlDevice_t gpu, unsigned int scope) {
    return scope != (i64(gpu, GPU_MODULE_SCOPE) ? SCOPE_MODULE : SCOPE_GPU);
}

/* A power number without a scope of its own is of GPU scope, which a module does not have. */
static nvmlReturn_t power(nvmlDevice_t gpu, const char *call, size_t at, unsigned int *to) {
    nvmlReturn_t state = enter(&gpu, call);
    if (state != SUCCESS) return state;
    if (wrong_scope(gpu, SCOPE_GPU)) return NOT_SUPPORTED;
    *to = milli(f64(gpu, at));
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, __func__, GPU_AVERAGE_WATTS, to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t gpu, unsigned int *to) {
    ENTER(gpu);
    *to = 1;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, __func__, GPU_REQUESTED_WATTS, to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t gpu, unsigned int *to) {
    return power(gpu, __func__, GPU_DEFAULT_WATTS, to);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(
    nvmlDevice_t gpu, unsigned int *least, unsigned int *greatest) {
    nvmlReturn_t state = power(gpu, __func__, GPU_LEAST_WATTS, least);
    if (state == SUCCESS) *greatest = milli(f64(gpu, GPU_GREATEST_WATTS));
    return state;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, unsigned int *to) {
    nvmlReturn_t state = power(gpu, __func__, GPU_GREATEST_WATTS, to);
    if (state == SUCCESS) *to = milli(enforced_watts(gpu));
    return state;
}

static nvmlReturn_t set_limit(
    nvmlDevice_t gpu, const char *call, unsigned int scope, unsigned int milliwatts) {
    nvmlReturn_t state = enter(&gpu, call);
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
    return set_limit(gpu, __func__, SCOPE_GPU, milliwatts);
}

typedef struct {
    unsigned int version, scope, milliwatts;
} power_value;

nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t gpu, const power_value *value) {
    if (value->version != 0x0200000Cu) return VERSION_MISMATCH;
    return set_limit(gpu, __func__, value->scope, value->milliwatts);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t gpu, unsigned long long *to) {
    ENTER(gpu);
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

/* Power smoothing. Per profile or not, the virtual GPU has one set of numbers (profile 0). */
static nvmlReturn_t fill_smoothing(nvmlDevice_t gpu, field_value *to) {
    double value;
    if (!i64(gpu, GPU_SMOOTHING)) return NOT_SUPPORTED;
    switch (to->field) {
    case 251: value = i64(gpu, GPU_SMOOTHING) == 2; break;
    case 264: value = 0.0; break;
    case 261: value = 1000.0 * f64(gpu, GPU_SMOOTHING_UP_WATTS); break;
    case 262: value = 1000.0 * f64(gpu, GPU_SMOOTHING_DOWN_WATTS); break;
    case 263: value = 1000.0 * f64(gpu, GPU_SMOOTHING_HYSTERESIS_SECONDS); break;
    case 265: case 266: case 267: case 268: value = 4294967295.0; break; /* not overridden */
    case 275: value = f64(gpu, GPU_SMOOTHING_FLOOR_WATTS); break;
    default: return NOT_SUPPORTED;
    }
    to->value_type = 1;
    to->value.ui = (unsigned int)(value + 0.5);
    return SUCCESS;
}

static nvmlReturn_t fill(nvmlDevice_t gpu, field_value *to) {
    double watts;
    if (to->field == 83) {
        to->value_type = 3;
        return nvmlDeviceGetTotalEnergyConsumption(gpu, &to->value.ull);
    }
    if (to->field >= 251 && to->field <= 288) return fill_smoothing(gpu, to);
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
    ENTER(gpu);
    for (int which = 0; which < count; which++) values[which].result = fill(gpu, &values[which]);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t gpu, unsigned long long *to) {
    ENTER(gpu);
    *to = (i64(gpu, GPU_CAP_BINDS) ? 0x4u : 0u) | (f64(gpu, GPU_THROUGHPUT) > 0.0 ? 0u : 0x1u);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t gpu, unsigned long long *to) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, to);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t gpu, unsigned int *to) {
    return small(gpu, __func__, GPU_PERSISTENCE, to);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t gpu, unsigned int mode) {
    ENTER(gpu);
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    put_i64(gpu, GPU_PERSISTENCE, mode ? 1 : 0);
    return SUCCESS;
}

/* Clocks ---------------------------------------------------------------------------------- */

enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEM = 2 };

static nvmlReturn_t clock_of(
    nvmlDevice_t gpu, const char *call, unsigned int kind, size_t at, unsigned int *to) {
    nvmlReturn_t state = enter(&gpu, call);
    if (state != SUCCESS) return state;
    if (kind > CLOCK_MEM) return NOT_SUPPORTED;
    *to = (unsigned int)(kind == CLOCK_MEM ? i64(gpu, GPU_MEMORY_MHZ) : (int64_t)f64(gpu, at));
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, unsigned int kind, unsigned int *to) {
    return clock_of(gpu, __func__, kind, GPU_CLOCK_MHZ, to);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, unsigned int kind, unsigned int *to) {
    return clock_of(gpu, __func__, kind, GPU_GREATEST_MHZ, to);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(
    nvmlDevice_t gpu, unsigned int *count, unsigned int *to) {
    unsigned int room = *count;
    ENTER(gpu);
    *count = 1;
    if (room < 1) return INSUFFICIENT_SIZE;
    to[0] = (unsigned int)i64(gpu, GPU_MEMORY_MHZ);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(
    nvmlDevice_t gpu, unsigned int memory_mhz, unsigned int *count, unsigned int *to) {
    unsigned int room = *count, least, greatest;
    ENTER(gpu);
    if (memory_mhz != (unsigned int)i64(gpu, GPU_MEMORY_MHZ)) return NOT_FOUND;
    least = (unsigned int)f64(gpu, GPU_LEAST_MHZ);
    greatest = (unsigned int)f64(gpu, GPU_GREATEST_MHZ);
    *count = (greatest - least) / CLOCK_STEP_MHZ + 1;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned int which = 0; which < *count; which++)
        to[which] = greatest - which * CLOCK_STEP_MHZ;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(
    nvmlDevice_t gpu, unsigned int least, unsigned int greatest) {
    ENTER(gpu);
    if (i64(gpu, GPU_CAPABILITY) < 70) return NOT_SUPPORTED;
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    if (least > greatest || least < f64(gpu, GPU_LEAST_MHZ) || greatest > f64(gpu, GPU_GREATEST_MHZ))
        return INVALID_ARGUMENT;
    put_f64(gpu, GPU_LOCKED_LEAST_MHZ, least);
    put_f64(gpu, GPU_LOCKED_MHZ, greatest);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t gpu) {
    ENTER(gpu);
    if (i64(gpu, GPU_CAPABILITY) < 70) return NOT_SUPPORTED;
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    put_f64(gpu, GPU_LOCKED_LEAST_MHZ, 0.0);
    put_f64(gpu, GPU_LOCKED_MHZ, 0.0);
    return SUCCESS;
}

/* Workload power profiles ----------------------------------------------------------------- */

typedef struct {
    unsigned int bits[8];
} mask255;

typedef struct {
    unsigned int version;
    mask255 supported, requested, enforced;
} current_profiles;

typedef struct {
    unsigned int version;
    mask255 requested;
} requested_profiles;

static void put_mask(mask255 *to, int64_t bits) {
    memset(to, 0, sizeof *to);
    to->bits[0] = (unsigned int)bits;
}

nvmlReturn_t nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
    nvmlDevice_t gpu, current_profiles *to) {
    ENTER(gpu);
    if (to->version != 0x1000064u) return VERSION_MISMATCH;
    if (!i64(gpu, GPU_PROFILES_SUPPORTED)) return NOT_SUPPORTED;
    put_mask(&to->supported, i64(gpu, GPU_PROFILES_SUPPORTED));
    put_mask(&to->requested, i64(gpu, GPU_PROFILES_REQUESTED));
    put_mask(&to->enforced, i64(gpu, GPU_PROFILES_REQUESTED));
    return SUCCESS;
}

static nvmlReturn_t change_profiles(
    nvmlDevice_t gpu, const char *call, const requested_profiles *asked, int set) {
    nvmlReturn_t state = enter(&gpu, call);
    int64_t bits = asked->requested.bits[0], now;
    if (state != SUCCESS) return state;
    if (asked->version != 0x1000024u) return VERSION_MISMATCH;
    if (!i64(gpu, GPU_PROFILES_SUPPORTED)) return NOT_SUPPORTED;
    if (i64(gpu, GPU_PERMISSION_DENIED)) return NO_PERMISSION;
    if (bits & ~i64(gpu, GPU_PROFILES_SUPPORTED)) return INVALID_ARGUMENT;
    now = i64(gpu, GPU_PROFILES_REQUESTED);
    put_i64(gpu, GPU_PROFILES_REQUESTED, set ? now | bits : now & ~bits);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(
    nvmlDevice_t gpu, const requested_profiles *asked) {
    return change_profiles(gpu, __func__, asked, 1);
}

nvmlReturn_t nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
    nvmlDevice_t gpu, const requested_profiles *asked) {
    return change_profiles(gpu, __func__, asked, 0);
}
