"""Compiled kernels for training small networks."""
