"""Helpers of several metrics: input checks, model scores and perturbed images."""
