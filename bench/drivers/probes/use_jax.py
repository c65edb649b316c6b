"""Uses JAX on whatever card there is, and prints what it answered as JSON."""

from __future__ import annotations

import jax
from report import report

answers = {}
try:
    answers["cuda"] = str([device.device_kind for device in jax.devices("cuda")])
except Exception as error:
    answers["cuda"] = f"{type(error).__name__}: {error}"
answers["default"] = jax.default_backend()
answers["sum"] = str(jax.numpy.arange(10).sum())
report(answers["default"], answers)
