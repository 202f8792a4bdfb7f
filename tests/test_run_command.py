"""What makes ``xaibench run`` start and end quickly."""

import gc
import subprocess
import sys

import pytest

from xaibench import cli


def test_the_fork_server_starts_before_torch_is_imported():
    code = (
        "import sys, xaibench.compute.fork_server as server\n"
        "server.start_fork_server = lambda: sys.exit(f'torch: {\"torch\" in sys.modules}')\n"
        "sys.argv = ['xaibench', 'run', 'xai-tris-8x8']\n"
        "from xaibench.cli import main; main()\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert told == "torch: False\n"


def test_objects_are_not_visited_again_before_python_exits(monkeypatch):
    def end():
        raise SystemExit(3)

    monkeypatch.setattr(cli, "app", end)
    gc.unfreeze()  # what the root conftest has frozen
    with pytest.raises(SystemExit, match="3"):
        cli.main()
    assert gc.get_freeze_count() > 1000
