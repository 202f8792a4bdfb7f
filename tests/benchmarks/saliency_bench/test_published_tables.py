import pytest

from xaibench.benchmarks.saliency_bench import published_tables as published

#: Cat and dog, to three decimals: iou, precision, recall, hit, insertion, deletion.
CAT_AND_DOG = {
    "gradcam": (0.160, 0.164, 0.812, 0.312, 0.752, 0.343),
    "cam": (0.128, 0.129, 0.844, 0.312, 0.736, 0.378),
    "gradcam++": (0.124, 0.124, 0.835, 0.343, 0.766, 0.351),
    "integrated_gradients": (0.300, 0.300, 0.997, 0.173, 0.399, 0.270),
    "guided_backprop": (0.303, 0.303, 0.997, 0.218, 0.472, 0.301),
    "input_x_gradient": (0.281, 0.306, 0.924, 0.189, 0.468, 0.317),
    "saliency": (0.298, 0.305, 0.974, 0.214, 0.422, 0.290),
    "rise": (0.309, 0.310, 0.999, 0.163, 0.886, 0.236),
}


def test_the_published_tables_are_whole():
    assert len(published.TABLE_3) == 5 * 8
    assert {key for key, _ in published.TABLE_3} == set(published.SETS) == set(published.TABLE_2)
    assert all(list(row) == list(published.TABLE_3_METRICS) for row in published.TABLE_3.values())
    assert all(0 < value < 1 for row in published.TABLE_3.values() for value in row.values())
    for explainer, row in CAT_AND_DOG.items():
        assert tuple(published.TABLE_3["pet", explainer].values()) == pytest.approx(row, abs=5.1e-4)
    # One number of each other set, and the sums of its columns' ends, against a slip of the pen.
    assert published.TABLE_3["gender", "rise"]["iou"] == 0.3416
    assert published.TABLE_3["scene", "gradcam"]["hit"] == 0.4777
    assert published.TABLE_3["object1", "saliency"]["insertion"] == 0.303
    assert published.TABLE_3["object2", "integrated_gradients"]["recall"] == 0.9263
    columns = {name: [row[name] for row in published.TABLE_2.values()] for name in published.TABLE_2["pet"]}
    assert columns == {
        "mean": [74.20, 94.40, 98.14, 87.12, 77.12],
        "precision": [74.16, 94.41, 98.17, 87.15, 81.71],
        "recall": [74.13, 94.38, 98.14, 87.12, 77.12],
        "f1": [74.15, 94.39, 98.13, 87.13, 78.47],
    }


def test_the_published_agreement_is_that_of_table_4():
    columns = {name: [row[name] for row in published.TABLE_4.values()] for name in ("gradcam", "rise")}
    assert columns == {"gradcam": [-0.5, 0.6, 0.7, -0.9, -0.8, 0.9], "rise": [0.1, 0.3, 0.3, -0.9, -0.6, 0.7]}
    assert published.TABLE_4["hit", "iou"]["integrated_gradients"] == -0.1


def test_saliency_on_object_2_is_the_only_row_that_cannot_be():
    """No mean IoU is above the mean precision: the page's note on it stays true."""
    odd = [key for key, row in published.TABLE_3.items() if row["iou"] > row["precision"]]
    assert odd == [("object2", "saliency")]
