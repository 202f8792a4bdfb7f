"""Training as the paper words it, in the plainest PyTorch: one model, one loop, torch's own Adam.

Clark, Wilming, Haufe (2024), section 3.2. Slow, and written without looking at ``xaibench.models``.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F


def train(model, train_images, train_targets, val_images, val_targets, *, epochs, lr, batch_size, loss, seed):
    """Train in place; return the losses of each epoch (training, validation) and the best epoch."""

    def loss_of(images, targets):
        output = model(images)
        if loss == "probabilities":
            output = torch.softmax(output, dim=1)
        return F.cross_entropy(output, targets)

    shuffle = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    train_losses, val_losses, best = [], [], None
    for epoch in range(epochs):
        order = torch.randperm(len(train_targets), generator=shuffle)
        total = 0.0
        model.train()
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            value = loss_of(train_images[batch], train_targets[batch])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item() * len(batch)
        train_losses.append(total / len(order))
        model.eval()
        with torch.no_grad():
            val_losses.append(loss_of(val_images, val_targets).item())
        if best is None or val_losses[-1] < val_losses[best[0]]:
            best = epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best[1])
    return train_losses, val_losses, best[0]
