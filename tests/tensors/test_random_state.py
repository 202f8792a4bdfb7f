from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from xaibench.tensors.random_numbers import isolated_rng, seeded_globals


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
