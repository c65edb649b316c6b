"""GPUs and what stands between them and programs: NVML, slots, the shim and the stand-in driver."""
