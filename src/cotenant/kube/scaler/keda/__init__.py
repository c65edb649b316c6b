"""Answers KEDA as an external scaler: with what GpuScalers have decided, so that one policy decides."""
