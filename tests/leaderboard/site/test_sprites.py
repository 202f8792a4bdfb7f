"""The maps on the site are of the same samples, in every cell that any method has, whichever result comes first."""

import dataclasses
import io

import numpy as np
from PIL import Image

from xaibench.leaderboard.site.sprites import map_sprite, sample_sprite, select_samples
from xaibench.runfolder.sample_file import SampleCell

CNN, MLP = ("lin", "white", "cnn"), ("lin", "white", "mlp")


def cell(place, samples, method="lime"):
    """Images whose every pixel is the sample's number, and maps that are bright in its column."""
    count, numbers = len(samples), np.array(samples, dtype=np.uint8)
    maps = np.zeros((count, 1, 8, 8), np.float16)
    maps[np.arange(count), 0, :, numbers] = 1
    return SampleCell(
        *place, "lin-white", 0, 0, tuple(samples), tuple(map(str, samples)), count, (), None, (method,), False,
        np.broadcast_to(numbers[:, None, None, None], (count, 8, 8, 3)), np.ones((count, 8, 8), np.uint8), maps,
        np.zeros((0, 8, 8), np.float32),
    )  # fmt: skip


def numbers(shown, place):
    return [sample for _, _, sample in shown.samples[place]]


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=int)


def test_cells_of_all_methods_are_shown_in_the_order_of_the_suite():
    only_cnn, both = [cell(CNN, [0, 1])], [cell(CNN, [0, 1]), cell(MLP, [0, 1])]
    for results in ([only_cnn, both], [both, only_cnn]):
        assert list(select_samples(results, [MLP, CNN]).samples) == [MLP, CNN]
    assert select_samples([[], []], [MLP]) is None
    assert select_samples([[dataclasses.replace(both[0], maps=np.zeros((2, 0, 8, 8)), explainers=())]], [CNN]) is None


def test_what_most_methods_have_is_shown_and_of_that_the_first_of_the_test_split():
    results = [[cell(CNN, [7, 0, 1, 2, 3, 5])], [cell(CNN, [0, 6, 1, 2, 3, 5])], [cell(CNN, [4, 0, 1, 2, 5])]]
    assert numbers(select_samples(results, [CNN]), CNN) == [0, 1, 2, 5], "3 is of two methods, 5 of all"
    few = [[cell(CNN, [1, 0])], [cell(CNN, [2, 0])], [cell(CNN, [3, 0])]]
    assert numbers(select_samples(few, [CNN]), CNN) == [0]
    assert numbers(select_samples([[cell(CNN, [3])], [cell(CNN, [2])], [cell(CNN, [1])]], [CNN]), CNN) == [1]


def test_each_map_stands_below_its_sample_and_a_method_says_which_rows_it_has():
    first, second = [cell(CNN, [3, 1])], [cell(CNN, [1, 3]), cell(MLP, [2])]
    shown = select_samples([first, second], [MLP, CNN])
    assert (shown.columns, shown.side) == (2, 8)
    sheet = pixels(sample_sprite(shown))
    assert sheet.shape == (16, 32, 3)
    assert [sheet[y, x, 0] for y, x in ((4, 4), (12, 4), (12, 12))] == [2, 1, 3]
    assert (sheet[8:, 16:] == 255).all(), "their ground truths"
    for cells, rows in ((first, (1,)), (second, (0, 1))):
        content, has = map_sprite(shown, cells)
        assert has == rows
        bright = pixels(content).sum(axis=2)[8:].argmax(axis=1)
        assert set(bright) == {1}, "the map of sample 1 stands first"
        assert set(pixels(content).sum(axis=2)[8:, 8:].argmax(axis=1)) == {3}
