"""How pytest runs: in how many processes, and without what an optional package is missing for."""

import gc
from importlib.util import find_spec

import pytest

gc.disable()  # see pytest_collection_finish: together they take a tenth off the whole suite
collect_ignore_glob = []
if not find_spec("ray"):
    collect_ignore_glob.append("xaibench/runner/ray_cluster.py")


#: Begun first, so that no worker is left alone with one of them in the end.
SLOW = {"test_kill.py", "test_add_a_part.py", "test_docs_site.py", "test_running.py", "test_annotated_page.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many as there are processors for folders; for files, or words given with ``-k``, this one (``-n`` overrules).

    Each worker imports torch and collects for itself, which takes longer than what a few tests would save.
    """
    return 0 if config.option.keyword or any(".py" in given for given in config.args) else None


def pytest_collection_finish() -> None:
    """From here on garbage is collected, but what was imported and collected is there to stay.

    More seldom than by default, where it takes a twentieth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first. Names that differ from process to process are refused at once, not where several compare."""
    items.sort(key=lambda item: item.path.name not in SLOW)
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: a test's name holds an address; give the parameters ids without.")
