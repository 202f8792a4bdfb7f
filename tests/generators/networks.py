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
    """Two layers of attention over patches of two pixels, which the explainers of transformers need."""

    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.patches = nn.Conv2d(in_shape[0], 8, 2, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, num_classes)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens.mean(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens):
        return tokens + self.attention(tokens, tokens, tokens)[0]
