import captum.attr
import pytest
import torch
from oracles import explainers as oracle

from xaibench.explainers import ExplainedOutput, explain


@pytest.mark.parametrize("baseline", [0.0, 0.3])
def test_integrated_gradients_node_by_node_and_captum(double, images, targets, baseline):
    model, explained = double
    x = images.double()
    maps = explain("ig", model, images, targets, baseline=baseline)
    expected = [oracle.integrated_gradients(explained, i, y, 50, baseline)[0] for i, y in zip(x, targets, strict=True)]
    torch.testing.assert_close(maps, torch.stack(expected), rtol=1e-10, atol=1e-15)
    theirs = captum.attr.IntegratedGradients(explained).attribute(x, baseline, target=targets)
    # Captum rounds the weights of the quadrature to float32.
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-6, atol=1e-9)


def test_integrated_gradients_sum_to_the_difference_from_the_baseline(mlp, images, targets):
    explained = ExplainedOutput(mlp.double().eval())
    maps = explain("ig", mlp, images, targets, n_steps=500)
    at_images = explained(images.double())[range(7), targets]
    at_baseline = explained(torch.zeros(1, 1, 8, 8, dtype=torch.float64))[0, targets]
    torch.testing.assert_close(maps.sum((1, 2)), at_images - at_baseline, rtol=1e-3, atol=1e-4)


def test_of_a_linear_network_all_are_known(linear):
    model = linear([1.0, -2.0, 3.0, 0.5], [0.0, 1.0, 0.0, -1.0])
    x = torch.tensor([[2.0, 1.0, -1.0, 4.0]], dtype=torch.float64).reshape(1, 1, 2, 2)
    for target, weight in enumerate(model[1].weight.detach()):
        y = torch.tensor([target])
        product = (weight * x.flatten()).reshape(1, 2, 2)
        torch.testing.assert_close(explain("saliency", model, x, y, output="logit"), weight.reshape(1, 2, 2))
        torch.testing.assert_close(explain("ig", model, x, y, output="logit"), product)
        torch.testing.assert_close(explain("gradient_shap", model, x, y, output="logit"), product)
    margin = explain("saliency", model, x, torch.tensor([0]), output="margin")
    torch.testing.assert_close(margin.flatten(), model[1].weight[0].detach() - model[1].weight[1].detach())


def test_integrated_gradients_of_a_square_by_hand():
    class Square(torch.nn.Module):
        def forward(self, x):
            total = (x.flatten(1) * x.new_tensor([1.0, 2.0])).sum(1) ** 2
            return torch.stack([total, -total], 1)

    x = torch.tensor([3.0, 1.0]).reshape(1, 1, 1, 2)
    maps = explain("ig", Square(), x, torch.tensor([0]), output="logit", n_steps=3)
    # f = (x1 + 2 x2)²; the gradient at t x is 2 t (3 + 2) (1, 2), its integral 5 (1, 2).
    torch.testing.assert_close(maps.flatten(), torch.tensor([15.0, 10.0]))
