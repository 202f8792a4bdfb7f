import numpy as np
import pytest
import torch

from xaibench.network.explained_output import ExplainedOutput
from xaibench.tensors.inputs import as_targets, label_pairs


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor([2, 0, 1]),
        torch.tensor([2, 0, 1], dtype=torch.int32),
        np.array([2, 0, 1]),
        np.array([1, 0, 2], dtype=">i4")[::-1],
        [2, 0, 1],
        (2, 0, 1),
    ],
)
def test_classes_come_in_any_form(given):
    found = as_targets(given, 3)
    assert found.classes.dtype == torch.int64
    assert found.classes.tolist() == [2, 0, 1]


@pytest.mark.parametrize("given", [1, np.int64(1), torch.tensor(1), np.array(1)])
def test_one_class_for_all_images(given):
    assert as_targets(given, 3).classes.tolist() == [1, 1, 1]


@pytest.mark.parametrize("convert", [torch.tensor, np.array, list, lambda t: torch.tensor(t).float(), np.bool_])
def test_multi_hot_rows_are_pairs_of_image_and_label(convert):
    found = as_targets(convert([[1, 0, 1], [0, 0, 0], [0, 1, 0]]), 3)
    assert (found.rows.tolist(), found.classes.tolist(), found.labels) == ([0, 0, 2], [0, 2, 1], 3)
    with pytest.raises(ValueError, match=r"rows of 3 labels, but the model has 4 outputs; expected \[N, 4\]"):
        ExplainedOutput(torch.nn.Identity()).check_targets(torch.zeros(3, 4), found.classes, found)


def test_a_single_column_is_the_positive_class():
    rows, labels = label_pairs([[1], [0], [1]])
    assert (rows.tolist(), labels.tolist()) == ([0, 2], [1, 1])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.zeros(3), TypeError, "got torch.float32, expected integers"),
        (torch.zeros(3, dtype=torch.bool), TypeError, "got torch.bool, expected integers"),
        ([0.5, 1, 2], TypeError, "expected integers"),
        (torch.zeros(2, dtype=torch.long), ValueError, r"got \[2\], expected \[3\]"),
        (torch.zeros(2, 4), ValueError, r"got \[2, 4\], expected \[3, K\]"),
        (torch.zeros(3, 4), ValueError, "no label is set"),
        ([[0, 1], [2, 0], [0, 0.5]], ValueError, "other than 0 and 1 in rows 1, 2"),
        ([[0, 1], [1], [1, 0]], ValueError, "different lengths"),
        (torch.zeros(3, 1, 1), TypeError, "expected integers"),
        ("cat", TypeError, "got str, expected one class, or a list"),
        (["cat", "dog", "cat"], TypeError, "expected real numbers"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_other_targets_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        as_targets(given, 3)
