"""Is my saliency map right? A new explainer beside Integrated Gradients and two controls, on XOR with correlated noise.

    python examples/own_explainer.py

An explainer is any callable ``(model, images, targets) -> maps``.
"""

import argparse

import torch

import xaibench as xb


def input_times_gradient_squared(model, images, targets):
    """The explainer to try: |x · ∂p/∂x|², summed over the channels."""
    images = images.clone().requires_grad_()
    chosen = model(images).gather(1, targets[:, None]).sum()
    (gradient,) = torch.autograd.grad(chosen, images)
    return (images * gradient).square().sum(1).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--samples", type=int, default=200)
    options = parser.parse_args()

    data = xb.load("xai-tris/xor-corr-8x8", seed=0)
    train, val, _ = xb.loading("xai-tris/xor-corr-8x8", seed=0, verbose=False)
    model = xb.models.build("mlp", in_shape=(1, 8, 8), num_classes=2, seed=0)
    xb.models.fit(model, train, val, epochs=options.epochs, seed=0, progress=False)
    print(f"test accuracy {xb.models.accuracy(model, data.test):.3f}")

    images, masks, targets = data.test[: options.samples]
    print(f"{'explainer':<30} {'EMD performance':>16} {'precision':>10}")
    for explainer in (input_times_gradient_squared, "integrated_gradients", "laplace", "uniform"):
        maps = xb.explain(explainer, model, images, targets)
        name = explainer if isinstance(explainer, str) else explainer.__name__
        print(f"{name:<30} {xb.emd_perf(maps, masks):>16.3f} {xb.topk_precision(maps, masks):>10.3f}")


if __name__ == "__main__":
    main()
