import torch

from xaibench.metrics.shared.perturb import resolve_baseline


def test_a_number_is_a_baseline_in_the_precision_of_the_images():
    images = torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    for baseline in (0.3, (0.3, 0.3, 0.3)):
        found = resolve_baseline(baseline, images)(slice(0, 2))
        assert found.dtype == torch.float64
        assert (found == 0.3).all()
