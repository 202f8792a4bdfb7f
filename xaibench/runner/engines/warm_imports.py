"""What the fork server imports once, so that every worker process starts with it."""

import torch  # noqa: F401

import xaibench.data
import xaibench.explainers
import xaibench.metrics
import xaibench.models
import xaibench.runner.stages.execution  # noqa: F401
