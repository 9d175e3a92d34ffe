"""A virtual ``libnvidia-ml.so.1`` on the register window, for real NVML clients."""
