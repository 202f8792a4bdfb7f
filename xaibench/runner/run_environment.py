"""Where and with what a run was done: enough to do it again."""

from __future__ import annotations

import json
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
    """The commit of a source checkout, or the one that pip installed from; of a release there is none."""
    root = Path(xaibench.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return _installed_commit()
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _installed_commit() -> str | None:
    """What pip noted of ``pip install git+https://...`` (PEP 610)."""
    try:
        noted = metadata.distribution("xaibench").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    commit = json.loads(noted or "{}").get("vcs_info", {}).get("commit_id")
    return None if commit is None else str(commit)


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
