"""The parts and the classes of creatures."""

import itertools

import numpy as np

from xaibench.benchmarks.creatures.creatures import BODY_PARTS, CLASSES, CODES, DECIDING, draw_looks, jitter


def test_every_variant_is_in_half_of_the_classes():
    assert len(CODES) == len(set(CODES)) == len(CLASSES) == 8
    assert (np.sum(CODES, axis=0) == 4).all()


def test_three_parts_determine_the_class_and_two_do_not():
    for chosen in itertools.combinations(range(len(DECIDING)), 3):
        assert len({tuple(code[part] for part in chosen) for code in CODES}) == 8
    for chosen in itertools.combinations(range(len(DECIDING)), 2):
        assert len({tuple(code[part] for part in chosen) for code in CODES}) == 4


def test_deciding_parts_look_as_the_class_says_and_the_others_at_random():
    rng = np.random.default_rng(0)
    shapes = np.array([[look.shape for look in draw_looks(target, rng)] for target in range(8) for _ in range(40)])
    targets = np.repeat(np.arange(8), 40)
    for number, body_part in enumerate(BODY_PARTS, start=1):
        mean = [shapes[targets == target, number - 1].mean() for target in range(8)]
        if body_part.decides:
            assert mean == [code[DECIDING.index(number)] for code in CODES]
        else:
            assert 0.2 < min(mean) < max(mean) < 0.8


def test_the_colors_of_a_deciding_part_are_of_its_group():
    rng = np.random.default_rng(1)
    for target, code in enumerate(CODES):
        for _ in range(10):
            looks = draw_looks(target, rng)
            for number, variant in zip(DECIDING, code, strict=True):
                group = np.array(BODY_PARTS[number - 1].colors[variant])
                assert np.abs(group - looks[number - 1].color).max(1).min() <= 15


def test_a_changed_color_stays_a_color():
    rng = np.random.default_rng(2)
    found = np.array([jitter((0, 128, 255), 15, rng) for _ in range(200)])
    assert found.min() == 0
    assert found.max() == 255
    assert len({*found[:, 1].tolist()}) == 31
