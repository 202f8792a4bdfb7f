"""Public names of a package that are loaded on first use."""

import importlib

import pytest

PACKAGES = (
    "xaibench",
    "xaibench.benchmarks",
    "xaibench.data",
    "xaibench.explainers",
    "xaibench.leaderboard",
    "xaibench.metrics",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        called = getattr(getattr(module, name), "__name__", name).rpartition(".")[2]
        assert called in (name, "Literal"), "an entry that leads to something else"
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize(
    ("package", "wrong", "meant"),
    [
        ("xaibench", "exlain", "explain"),
        ("xaibench.benchmarks", "checkerbord", "checkerboard"),
        ("xaibench.explainers", "Salincy", "Saliency"),
        ("xaibench.leaderboard", "verfy", "verify"),
        ("xaibench.metrics", "preciison", "precision"),
    ],
)
def test_a_name_that_is_not_there_is_said_as_python_says_it(package, wrong, meant):
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=rf"^module '{package}' has no attribute '{wrong}'") as caught:
        getattr(module, wrong)
    assert (caught.value.name, caught.value.obj) == (wrong, module)  # from these Python finds what may be meant
    assert meant in dir(module)
