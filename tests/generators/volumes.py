"""Networks of volumes: real ones of three axes, and networks of images turned into networks of single slices."""

import copy

import torch
from torch import nn


class Residual(nn.Module):
    """Convolutions in three axes with a branch, batch normalizations and poolings, as in a network of scans."""

    def __init__(self, channels=1, classes=2, width=4, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.stem = nn.Sequential(nn.Conv3d(channels, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU())
            self.pool = nn.MaxPool3d(2)
            self.branch = nn.Sequential(nn.Conv3d(width, width, 3, padding=1), nn.BatchNorm3d(width))
            self.last = nn.ReLU()
            self.mean = nn.AdaptiveAvgPool3d(1)
            self.head = nn.Linear(width, classes)
            for norm in (self.stem[1], self.branch[1]):
                norm.running_mean.normal_(0, 0.3)
                norm.running_var.uniform_(0.5, 1.5)
        self.eval()

    def forward(self, volumes):
        features = self.pool(self.stem(volumes))
        return self.head(self.mean(self.last(features + self.branch(features))).flatten(1))


class Transformer(nn.Module):
    """Attention over cubes of two voxels a side and a class token."""

    def __init__(self, channels=1, classes=2, patches=2 * 3 * 4, width=8, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.patches = nn.Conv3d(channels, width, 2, 2)
            self.token = nn.Parameter(torch.randn(1, 1, width))
            self.places = nn.Parameter(torch.randn(1, patches + 1, width))
            self.blocks = nn.ModuleList(_Block(width) for _ in range(2))
            self.head = nn.Linear(width, classes)
        self.eval()

    def forward(self, volumes):
        patches = self.patches(volumes).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1) + self.places
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens[:, 0])


class _Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, tokens):
        normed = self.norm(tokens)
        tokens = tokens + self.attention(normed, normed, normed)[0]
        return tokens + self.mlp(tokens)


def of_single_slices(network):
    """A copy for volumes of one slice with the same weights: layers of images become layers of depth one."""
    network = copy.deepcopy(network)
    for name, module in list(network.named_modules()):
        if (found := _with_depth(module)) is not None:
            parent = network.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], found.train(module.training))
    return network


def _with_depth(module):
    if isinstance(module, nn.Conv2d):
        sizes = (1, *module.kernel_size), (1, *module.stride), (0, *module.padding)
        made = nn.Conv3d(module.in_channels, module.out_channels, *sizes, bias=module.bias is not None)
        made.weight, made.bias = nn.Parameter(module.weight.detach()[:, :, None]), module.bias
        return made
    if isinstance(module, nn.BatchNorm2d):
        made = nn.BatchNorm3d(module.num_features)
        made.load_state_dict(module.state_dict())
        return made
    if isinstance(module, nn.MaxPool2d):
        size = module.kernel_size
        return nn.MaxPool3d((1, size, size))
    return nn.AdaptiveAvgPool3d(module.output_size) if isinstance(module, nn.AdaptiveAvgPool2d) else None


def transposed(network, order):
    """A copy for volumes whose spatial axes were permuted: its filters are permuted in the same way."""
    network = copy.deepcopy(network)
    for module in network.modules():
        if isinstance(module, nn.Conv3d):
            module.weight.data = module.weight.data.permute(0, 1, *(2 + axis for axis in order)).contiguous()
    return network


class SliceDistribution:
    """The distribution of volumes of one slice, from that of images."""

    def __init__(self, images):
        self.images = images
        channels, *sides = images.image_shape
        self.image_shape = (channels, 1, *sides)

    def redrawn(self, images, blocks, uniform, *, given_others):
        return self.images.redrawn(images[:, :, 0], blocks, uniform, given_others=given_others)
