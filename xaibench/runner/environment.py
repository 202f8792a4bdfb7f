"""Environment of a run: versions, machine and commit, as needed to repeat the run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import xaibench
from xaibench.kernels.compilation import kernels_enabled
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
    """Return versions, machine and commit as JSON-serializable values.

    Example:
        >>> sorted(environment())
        ['commit', 'kernels', 'machine', 'python', 'versions', 'xaibench']
    """
    return {
        "xaibench": xaibench.__version__,
        "commit": _git_commit(),
        "kernels": kernels_enabled(),
        "python": platform.python_version(),
        "versions": dict(_versions()),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "gpus": _gpus(),
        },
    }


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def _git_commit() -> str | None:
    """Return the commit of a source checkout, or the commit that pip installed; None for a release."""
    root = Path(xaibench.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return _installed_commit()
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _installed_commit() -> str | None:
    """Return the commit that pip recorded for ``pip install git+https://...`` (PEP 610)."""
    try:
        record = metadata.distribution("xaibench").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    commit = json.loads(record or "{}").get("vcs_info", {}).get("commit_id")
    return None if commit is None else str(commit)


def _processor() -> str:
    """Return the name of the processor."""
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
