"""The explainers that need no gradient, for networks through which none passes."""

from __future__ import annotations

from xaibench.explainers.table import EXPLAINERS


def gradient_free() -> tuple[str, ...]:
    """Return the names of the explainers that only call the network, in the order of the table.

    They also explain quantized, exported and other networks through which no gradient passes. Controls, which do not
    use the network, are left out.

    Returns:
        Names in :data:`xaibench.explainers.EXPLAINERS`.

    Example:
        >>> [name for name in ("rise", "saliency", "sobel") if name in gradient_free()]
        ['rise']
    """
    infos = {name: EXPLAINERS.resolve(name).info for name in EXPLAINERS}
    return tuple(name for name, info in infos.items() if not info.needs_gradient and not info.control)


def gradient_free_advice() -> str:
    """Return a sentence that recommends these explainers, for messages."""
    return f"Use an explainer that needs no gradient: {', '.join(gradient_free())}."
