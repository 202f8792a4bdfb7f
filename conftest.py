"""What pytest leaves out where an optional package is missing."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") else ["xaibench/runner/engines/ray_engine.py"]
