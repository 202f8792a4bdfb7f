import dataclasses
import pickle

import pytest
from refusals import refused

from xaibench.registry.info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo

INFOS = [
    DatasetInfo("mine", classes=("a", "b"), image_shape=(1, 8, 8)),
    ExplainerInfo("Mine"),
    MetricInfo("Mine", "map", higher_is_better=True, range=(0.0, 1.0)),
    ModelInfo("Mine"),
]


@pytest.mark.parametrize("info", INFOS, ids=lambda info: type(info).__name__)
def test_infos_are_frozen_values_that_travel(info):
    assert pickle.loads(pickle.dumps(info)) == info
    assert hash(dataclasses.replace(info)) == hash(info)
    assert dataclasses.replace(info, revision=2) != info
    assert info.revision == 1
    with pytest.raises(dataclasses.FrozenInstanceError, match="revision"):
        info.revision = 2


@pytest.mark.parametrize("info", INFOS, ids=lambda info: type(info).__name__)
def test_an_info_attaches_itself_to_functions_and_classes(info):
    def function(number):
        return number + 1

    class Thing:
        pass

    assert info(function) is function
    assert function.info is info
    assert function(1) == 2
    assert info(Thing) is Thing
    assert Thing.info is Thing().info is info


def test_classes_that_look_alike_are_refused():
    refused(ValueError, "mine: class", lambda: DatasetInfo("mine", classes=("a", "\u0430"), image_shape=(1, 8, 8)))
