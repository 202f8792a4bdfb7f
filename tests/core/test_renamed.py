"""An old name is an error that gives the new one, and every new name exists."""

import importlib

import pytest

import xaibench as xb
from xaibench.component.registry import UnknownNameError
from xaibench.core.renamed import MOVED, RENAMED
from xaibench.explainers import EXPLAINERS
from xaibench.metrics import METRICS


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_moved_public_name_gives_its_new_place(old, new):
    package, _, name = old.rpartition(".")
    with pytest.raises(AttributeError, match=f"{old} is now {new}"):
        getattr(importlib.import_module(package), name)
    package, _, name = new.rpartition(".")
    assert getattr(importlib.import_module(package), name) is not None


def test_a_renamed_parameter_gives_its_new_name():
    with pytest.raises(TypeError, match="RISE has no parameter 'N'; it was renamed to 'n_masks'"):
        xb.explainers.build("rise", N=100)
    with pytest.raises(UnknownNameError, match="'leak'; it was renamed to 'mass_outside'"):
        METRICS.resolve("leak")


def test_no_renamed_name_is_a_registered_part_again():
    assert not set(RENAMED) & {*EXPLAINERS, *METRICS}
