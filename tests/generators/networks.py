"""A small pretrained-like classifier of the tests' own: convolutions, average pooling, a linear head."""

import torch
from torch import nn


class Small(nn.Sequential):
    def __init__(self, in_shape, num_classes):
        super().__init__(
            nn.Conv2d(in_shape[0], 6, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, num_classes),
        )


class Broken(Small):
    def forward(self, images):
        return super().forward(images) * torch.nan


def pets():
    """A network for cats and dogs."""
    torch.manual_seed(0)
    return Small((3, 224, 224), 2).eval()


class Attending(nn.Module):
    """Two attentions over patches of two pixels, which attention rollout needs."""

    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.patches = nn.Conv2d(in_shape[0], 8, 2, 2)
        self.attentions = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.head = nn.Linear(8, num_classes)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        for attention in self.attentions:
            tokens = tokens + attention(tokens, tokens, tokens)[0]
        return self.head(tokens.mean(1))
