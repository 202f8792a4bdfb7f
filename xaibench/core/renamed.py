"""Names of parts and parameters before 0.2.0, so that an error about an old name gives the new one."""

from __future__ import annotations

from collections.abc import Collection

#: Old name -> new names; which one applies depends on the names that are known where the old one was given.
RENAMED: dict[str, tuple[str, ...]] = {
    "N": ("n_masks",),
    "alike": ("pool_variances",),
    "auc": ("roc_auc",),
    "block": ("block_size",),
    "cell": ("cell_size",),
    "centre": ("center_prior",),
    "centred": ("centered",),
    "eps": ("epsilon",),
    "group": ("group_size",),
    "identity": ("logit",),
    "images": ("training_images",),
    "layers": ("n_layers",),
    "leak": ("mass_outside",),
    "min_size": ("min_segment_size",),
    "n_images": ("n_training_images",),
    "neighbours": ("neighbor_fraction",),
    "normalise": ("normalize",),
    "p": ("keep_probability",),
    "parameter_randomisation": ("parameter_randomization",),
    "projected": ("project_to_boundary",),
    "s": ("grid_size",),
    "side": ("segmentation_size",),
    "softmax": ("probability",),
    "training": ("training_images",),
}


def renamed(name: str, known: Collection[str]) -> str | None:
    """Return the new name of `name`, if it was renamed to one of the known names.

    Args:
        name: A name that is not known.
        known: The names that are accepted in its place.

    Example:
        >>> renamed("N", ["n_masks", "grid_size"]), renamed("N", ["n_steps"])
        ('n_masks', None)
    """
    return next((new for new in RENAMED.get(name, ()) if new in known), None)
