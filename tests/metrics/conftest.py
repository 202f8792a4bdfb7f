"""``--hypothesis-profile=fuzz``: the tests that state no number of examples of their own (test_fuzz.py) take 10,000."""

from hypothesis import HealthCheck, settings

settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
