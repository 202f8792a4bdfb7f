"""Encoded weights are near the trained ones, small, and restored exactly as their definition says."""

import zlib

import numpy as np
import pytest
import torch

from xaibench.runner.weight_coding import LARGE, RANKS, STEP, decode, encode

RANK = RANKS[0]
GENERATOR = np.random.default_rng(0)
SHAPE = (64, 300)


def matrix(*shape):
    return torch.from_numpy(GENERATOR.normal(size=shape)).float()


@pytest.fixture
def start():
    assert SHAPE[0] * SHAPE[1] >= LARGE
    return {"0.weight": matrix(*SHAPE), "0.bias": matrix(64), "2.weight": matrix(2, 64)}


@pytest.fixture
def trained(start):
    change = matrix(SHAPE[0], RANK) @ matrix(RANK, SHAPE[1])
    return {"0.weight": start["0.weight"] + change, "2.weight": start["2.weight"] + 0.1}


def test_only_weights_that_changed_are_encoded(start, trained):
    for rank in (*RANKS, None):
        restored = decode(start, encode(start, trained, rank))
        assert set(restored) == set(trained)
        assert all(restored[name].dtype == torch.float32 for name in restored)
        assert torch.equal(restored["2.weight"], trained["2.weight"].half().float())


def test_a_change_of_low_rank(start, trained):
    encoded = encode(start, trained, RANK)
    left, right, scale = (encoded[f"0.weight:{part}"] for part in ("left", "right", "scale"))
    assert (left.shape, left.dtype, right.shape, right.dtype) == (
        (64, RANK),
        torch.int16,
        (RANK, 300),
        torch.int8,
    )
    restored = decode(start, encoded)["0.weight"]
    exact = np.empty(SHAPE, dtype=np.float32)
    for row in range(SHAPE[0]):
        for column in range(SHAPE[1]):
            sum_ = sum(int(left[row, k]) * int(right[k, column]) for k in range(RANK))
            exact[row, column] = float(start["0.weight"][row, column]) + sum_ * float(scale)
    assert np.array_equal(restored.numpy(), exact)
    change = trained["0.weight"] - start["0.weight"]
    assert (restored - trained["0.weight"]).norm() < 0.02 * change.norm()


def test_weights_in_steps(start, trained):
    encoded = encode(start, trained, None)
    scale = encoded["0.weight:scale"]
    steps = np.frombuffer(zlib.decompress(encoded["0.weight:steps"].numpy().tobytes()), np.int8).reshape(SHAPE)
    restored = decode(start, encoded)["0.weight"]
    assert np.array_equal(restored.numpy(), (steps * scale.numpy()).astype(np.float32))
    assert ((restored - trained["0.weight"]).abs() <= 0.5001 * scale).all()
    assert scale.flatten().numpy() == pytest.approx(STEP * trained["0.weight"].double().std(1).numpy())
    # The entropy of a normal number in steps of a fifth of its standard deviation is 4.37 bits.
    assert 8 * encoded["0.weight:steps"].numel() < 4.8 * trained["0.weight"].numel()


def test_extreme_rows(start):
    odd = torch.zeros(SHAPE)
    odd[1, 3] = 1e4  # one weight of a row that is otherwise zero
    odd[2] = 1e-20
    restored = decode(start, encode(start, {"0.weight": odd}, None))["0.weight"]
    assert torch.equal(restored[0], odd[0])
    assert restored[1, 3] == pytest.approx(1e4, rel=0.01)
    assert restored[2].numpy() == pytest.approx(np.full(300, 1e-20), rel=0.01)


def test_large_sums_are_exact():
    """Single precision would lose their last bits."""
    left = torch.full((1, 32), 32767, dtype=torch.int16)
    left[0, 31] = 1
    encoded = {"w:left": left, "w:right": torch.full((32, 1), 127, dtype=torch.int8)}
    encoded["w:scale"] = torch.tensor([2.0**-20], dtype=torch.float64)
    sum_ = 31 * 32767 * 127 + 127
    assert int(np.float32(sum_)) != sum_
    (restored,) = decode({"w": torch.full((1, 1), -123.0)}, encoded).values()
    assert restored.item() == np.float32(sum_ * 2.0**-20 - 123)
