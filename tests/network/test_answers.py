import pytest
import torch
from torch import nn

from xaibench.network.answers import NetworkAnswers, assigned_classes, ends_in_sigmoid
from xaibench.network.explained_output import ExplainedOutput


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (torch.sigmoid, True),
        (nn.Sigmoid(), True),
        (torch.special.expit, True),
        (lambda z: z.sigmoid().flatten(1), True),
        (lambda z: z.sigmoid()[:, 0], True),
        (lambda z: z.sigmoid().double().unsqueeze(1).squeeze(1), True),
        (lambda z: z.sigmoid().reshape(-1, 3).clone().float(), True),
        (lambda z: z, False),
        (lambda z: z.softmax(1), False),
        (lambda z: 2 * z.sigmoid(), False),
        (lambda z: z.sigmoid() * z, False),  # SiLU
        (lambda z: z.sigmoid().detach(), False),
    ],
)
def test_a_sigmoid_at_the_end_is_recognized(end, expected):
    assert ends_in_sigmoid(lambda images: end(images * 1.0), torch.randn(1, 3)) == expected


def test_only_many_numbers_look_like_labels():
    rng = torch.Generator().manual_seed(0)
    explained = ExplainedOutput(nn.Identity())
    with pytest.warns(UserWarning, match="independent labels"):
        explained.check_activation(torch.zeros(1, 8), torch.rand(2, 8, generator=rng))
    for outputs in (torch.rand(2, 3, generator=rng), torch.randn(2, 8, generator=rng), torch.eye(4).repeat(1, 4)):
        explained.check_activation(torch.zeros(1, 8), outputs)


Z = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 1.0]])


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, [[True, False, False], [False, True, False]]),
        ("logit", [[True, False, False], [False, True, False]]),
        ("sigmoid", [[True, False, False], [False, True, True]]),
        (lambda z: z[:, 0], [[False] * 3] * 2),
    ],
)
def test_classes_are_assigned_by_the_output(output, expected):
    assert assigned_classes(Z, output).tolist() == expected


@pytest.mark.parametrize("end", [nn.Identity(), nn.Sigmoid()])
def test_logits_of_a_sigmoid_are_those_before_it(end):
    images = torch.randn(3, 1, 1, 2, generator=torch.Generator().manual_seed(0))
    answers = NetworkAnswers(nn.Sequential(nn.Flatten(), end), "sigmoid")
    assert answers.returns_probabilities(images) == isinstance(end, nn.Sigmoid)
    torch.testing.assert_close(answers.logits(images), images.flatten(1), rtol=1e-5, atol=1e-6)
    one = NetworkAnswers(nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False), end), "sigmoid")
    assert one.logits(images)[:, 0].equal(-one.logits(images)[:, 1])
    assert one.correct(images, torch.ones(3, dtype=torch.long)).equal(one.logits(images)[:, 1] > 0)
