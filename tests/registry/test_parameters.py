"""Names, types and errors of parameters."""

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
import torch
from refusals import refused

import xaibench as xb
from xaibench.core.checks import ParameterError, UnknownParameterError, check_count, check_names
from xaibench.registry.parameters import (
    annotations_of,
    check_types,
    describe_type,
    has_any_parameter,
    is_of_type,
    named_parameters,
)


@dataclass(frozen=True)
class Levels:
    levels: tuple[float, ...] = ()
    how: Literal["a", "b"] | None = None
    derived: int = field(default=0, init=False)

    def __call__(self, model, images, targets, *more, scale=1.0, **rest):
        return images


def test_parameters_of_classes_functions_and_objects():
    assert list(named_parameters(Levels)) == ["levels", "how"]
    assert list(named_parameters(Levels(), skip=3)) == ["scale"]
    assert list(named_parameters(Levels().__call__, skip=3)) == ["scale"]
    assert list(named_parameters(check_count, without=("owner",))) == ["name", "value", "least", "none"]
    assert named_parameters(3) == {}
    assert has_any_parameter(Levels())
    assert not has_any_parameter(Levels)


def test_errors_have_the_name_of_the_parameter():
    given = {"levels": [1], "how": "c", "other": 3}
    error = refused(ParameterError, "how is 'c'; expected 'a' or 'b'.", check_types, given, annotations_of(Levels))
    assert error.parameter == "how"


def test_an_unknown_name_is_a_type_error_and_a_value_error():
    for kind in (TypeError, ValueError, UnknownParameterError):
        said = "LIME has no parameter 'sed'; did you mean 'seed'? Known: n, seed."
        assert refused(kind, said, check_names, "LIME", ["n", "sed"], ["n", "seed"]).parameter == "sed"


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_can_be_copied_to_another_process(copied):
    error = copied(UnknownParameterError("There is no 'sed'.", parameter="sed"))
    assert (str(error), error.parameter, type(error)) == ("There is no 'sed'.", "sed", UnknownParameterError)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: xb.explainers.build("lime", n_sample=3), "n_sample"),
        (lambda: check_count("n_samples", 0, owner="LIME"), "n_samples"),
        (lambda: xb.explainers.build("lime", n_samples=0), "n_samples"),
        (lambda: xb.explainers.build("captum.attr:Saliency", absolute=True), "absolute"),
        (lambda: xb.models.build("mlp", (1, 8, 8), 2, widht=3), "widht"),
    ],
)
def test_parts_raise_these_errors(call, parameter):
    assert refused(ParameterError, parameter, call).parameter == parameter


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (int, [0, -3], [True, 1.0, "1", [1]]),
        (float, [0, 0.5], [True, "1"]),
        (bool, [True], [0, "true"]),
        (Literal["a", 1], ["a", 1], ["b", True, 2]),
        (int | None, [1], ["x"]),
        (tuple[int, int], [[1, 2], (1, 2)], [[1], [1, 2.5], 3]),
        (tuple[int, ...], [[], [1, 2, 3]], [["a"], 1]),
        (Sequence[float] | float, [[1, 2.5], 1], ["a", ["a"]]),
        (Mapping[str, Literal["z+"]], [{}, {"a": "z+"}], [{"a": "z"}, []]),
        (torch.Tensor | None, [], [1, [1]]),
        (np.ndarray, [], [1]),
        (Callable[[int], int], [], ["f"]),
        (object, [1, "a", {}], []),
    ],
)
def test_the_values_of_a_toml_file_are_checked_against_types(annotation, right, wrong):
    assert all(is_of_type(value, annotation) for value in right)
    assert not any(is_of_type(value, annotation) for value in wrong)


def test_types_describe_type():
    assert describe_type(int | float | None) == "a whole number or a number"
    assert describe_type(Sequence[float] | torch.Tensor) == "a list of numbers"
    assert describe_type(Mapping[str, int]) == "a table"
    assert describe_type(Literal["a"] | None) == "'a'"


def test_annotations_of_an_object_are_those_of_its_class_and_its_bases():
    class Base:
        def __call__(self, *, x: int, y: str): ...

    class Derived(Base):
        def __call__(self, *, y: float, **others): ...

    assert annotations_of(Derived()) == {"x": int, "y": float}


def test_annotations_that_cannot_be_evaluated_are_left_out():
    def unknown(x: "Nowhere", y: int):  # noqa: F821 - it is nowhere
        pass

    assert annotations_of(unknown) == {"y": int}
    assert annotations_of(Levels)["levels"] == tuple[float, ...]
