"""Devices, precision, memory, random numbers and model state."""
