"""Imports that the fork server does once, so that worker processes start with them."""

import torch  # noqa: F401

import xaibench.data
import xaibench.explainers
import xaibench.metrics
import xaibench.models
import xaibench.runner.stages.execute  # noqa: F401
