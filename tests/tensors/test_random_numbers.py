import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from xaibench.explainers.base import blocks
from xaibench.tensors import random_numbers as sample_draws
from xaibench.tensors.random_numbers import isolated_rng, normal_numbers, sample_generators, seeded_by, seeded_globals


def test_inside_the_seed_decides_and_after_it_the_caller_goes_on():
    torch.manual_seed(7)
    first, second = torch.rand(3), torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), first)
    with isolated_rng(1):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), second)
    with isolated_rng(1):
        assert torch.equal(torch.rand(3), inside)
    with isolated_rng(2):
        assert not torch.equal(torch.rand(3), inside)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_a_generator_of_its_own():
    device = torch.device("cuda", 0)
    before = torch.cuda.get_rng_state(device)
    with isolated_rng(1, device):
        inside = torch.rand(3, device=device)
    assert torch.equal(torch.cuda.get_rng_state(device), before)
    with isolated_rng(1, device):
        assert torch.equal(torch.rand(3, device=device), inside)


def test_threads_draw_one_after_the_other():
    def draw():
        with seeded_globals(1):
            return torch.rand(3).tolist(), np.random.random(3).tolist()

    torch.manual_seed(7)
    expected, before = draw(), torch.get_rng_state()
    with ThreadPoolExecutor(1) as pool:
        with seeded_globals(1):
            inside = torch.rand(3).tolist()
            other = pool.submit(draw)
            with pytest.raises(TimeoutError):
                other.result(0.05)
            drawn = inside, np.random.random(3).tolist()
        assert drawn == other.result(20) == expected
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def images():
    return torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(0))


def drawn(seed, images):
    return [generator.random() for generator in sample_generators(seed, images)]


def test_what_is_drawn_belongs_to_the_seed_and_the_image(images):
    first = drawn(0, images)
    assert len({*first, *drawn(1, images)}) == 8
    order = [2, 0, 3, 1]
    assert drawn(0, images[order]) == [first[i] for i in order]
    assert drawn(0, images[[1, 1]]) == [first[1]] * 2


def test_the_form_of_the_image_does_not_matter(images):
    images[0, 0, 0, 0] = 0.0
    negative = images.clone()
    negative[0, 0, 0, 0] = -0.0
    channels_last = images.to(memory_format=torch.channels_last)
    for same in (images.double(), negative, channels_last, images.clone().requires_grad_()):
        assert drawn(0, same) == drawn(0, images)


def test_the_draws_are_the_same_everywhere_and_for_good():
    # What a score rests on: another number here moves every published score of an explainer that draws.
    (generator,) = sample_generators(0, torch.zeros(1, 1, 2, 2))
    assert generator.integers(1000, size=4).tolist() == [97, 532, 34, 171]


def test_the_generators_of_images_are_independent():
    images = torch.arange(2000.0).reshape(-1, 1, 1, 1)
    first = np.array(drawn(0, images))
    assert abs(first.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.08


def test_inside_a_block_the_originals_draw(images):
    plain = drawn(0, images)
    with seeded_by(images):
        assert drawn(0, images + 1) == plain
        with seeded_by(images + 1):  # the outermost counts
            assert drawn(0, images + 1) == plain
        assert (
            drawn(0, images[:2] + 1) == drawn(0, images[:2] + 1) != plain[:2]
        )  # other samples: not those of the block
    assert drawn(0, images + 1) != plain


def test_a_block_is_that_of_its_thread(images):
    found = []
    thread = threading.Thread(target=lambda: found.append(drawn(0, images + 1)))
    with seeded_by(images):
        thread.start(), thread.join()
    assert found == [drawn(0, images + 1)]


@pytest.mark.parametrize("at_a_time", [5, 1 << 15])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_normal_numbers_are_drawn_in_turn_whatever_the_blocks_and_the_threads(images, device, at_a_time, monkeypatch):
    # What is drawn for another device is drawn by threads; what comes of it must not tell.
    seen = []
    monkeypatch.setattr(sample_draws, "_DRAWN", at_a_time)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args, **kwargs: seen.append(self) or self)
    like = torch.empty_like(images, device=device)
    whole = np.stack([generator.standard_normal((7, 2, 3, 3)) for generator in sample_generators(3, images)])
    for rows, across in itertools.product((1, 3, 14, 100), (False, True)):
        cut = list(blocks(4, 7, rows, across=across))
        found = torch.zeros(4, 7, 2, 3, 3)
        for (samples, steps), numbers in zip(cut, normal_numbers(sample_generators(3, images), like, cut), strict=True):
            found[samples, steps] = numbers
        assert found.equal(torch.from_numpy(whole).float())
    assert seen


def test_normal_numbers_of_a_type_that_numpy_lacks():
    like = torch.zeros(1, 1, 3, 3, dtype=torch.bfloat16)
    (found,) = normal_numbers(sample_generators(3, like), like, [(slice(0, 1), slice(0, 2))])
    whole = sample_generators(3, like)[0].standard_normal((1, 2, 1, 3, 3))
    assert found.equal(torch.from_numpy(whole).bfloat16())
