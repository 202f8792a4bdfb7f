"""Where and with what a run was done: enough to do it again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import xaibench
from xaibench.runfolder.descriptions import Environment

_PACKAGES = (
    "torch",
    "torchvision",
    "captum",
    "numpy",
    "scipy",
    "pot",
    "scikit-learn",
    "scikit-image",
    "pandas",
    "pyarrow",
    "matplotlib",
)


def environment() -> Environment:
    """Versions, machine and commit, as JSON-ready values.

    Example:
        >>> sorted(environment())
        ['commit', 'machine', 'python', 'versions', 'xaibench']
    """
    return {
        "xaibench": xaibench.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cpus": os.cpu_count(),
            "gpus": _gpus(),
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of a source checkout; an installed package has none."""
    root = Path(xaibench.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """What the machine calls its processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
