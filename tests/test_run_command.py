"""What makes ``xaibench run`` start and end quickly."""

import gc
import subprocess
import sys
import warnings

import pytest
import typer

from xaibench import cli
from xaibench.cli import terminal


def test_the_fork_server_starts_before_torch_is_imported():
    code = (
        "import sys, xaibench.tensors.workers as server\n"
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
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    gc.unfreeze()  # what the root conftest has frozen
    with pytest.raises(SystemExit, match="3"):
        cli.main()
    assert gc.get_freeze_count() > 1000


def test_a_command_shows_warnings_without_a_line_of_code(monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(cli, "app", lambda: shown.append(warnings.formatwarning("slow", UserWarning, "typer.py", 7)))
    cli.main()
    assert shown == ["Warning: slow\n"]


@pytest.mark.parametrize("error", [typer.BadParameter("no"), typer.Exit(3), typer.Abort()])
def test_errors_of_usage_import_nothing_to_be_told_apart(error, monkeypatch):
    monkeypatch.setattr(terminal, "_exit_code", lambda error: pytest.fail("this imports the library"))
    with pytest.raises(type(error)), terminal.clear_errors():
        raise error
