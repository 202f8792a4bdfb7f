"""Names before 0.2.0, so that an error about an old name gives the new one."""

from __future__ import annotations

from collections.abc import Iterable

#: Old name of a part, parameter or option -> new names. The error gives the one that is known in its place.
RENAMED: dict[str, tuple[str, ...]] = {
    "N": ("n_masks",),
    "attention": ("attention_rule",),
    "auc": ("roc_auc",),
    "block": ("block_size",),
    "blocks": ("block_sizes",),
    "cell": ("cell_size",),
    "centred": ("centered",),
    "eps": ("epsilon",),
    "grid": ("grid_size",),
    "group": ("group_size",),
    "groups": ("n_groups",),
    "images": ("training_images",),
    "layers": ("n_layers",),
    "leak": ("mass_outside",),
    "licence": ("license",),
    "min_size": ("min_segment_size",),
    "n_images": ("n_training_images",),
    "neighbours": ("neighbor_fraction",),
    "noise": ("noise_std",),
    "p": ("keep_probability",),
    "parameter_randomisation": ("parameter_randomization",),
    "projected": ("project_to_boundary",),
    "s": ("grid_size",),
    "side": ("segmentation_size",),
    "sigma": ("noise_std",),
    "sizes": ("fractions",),
    "training": ("training_images",),
}

#: Old public name with its package -> new one.
MOVED: dict[str, str] = {
    "xaibench.data.checkerboard": "xaibench.benchmarks.checkerboard",
    "xaibench.data.mosaics": "xaibench.benchmarks.make_mosaics",
    "xaibench.data.paper_accuracy": "xaibench.benchmarks.paper_accuracy",
    "xaibench.data.paper_alpha": "xaibench.benchmarks.paper_alpha",
    "xaibench.data.plant_trigger": "xaibench.benchmarks.plant_trigger",
    "xaibench.data.read_released": "xaibench.benchmarks.read_released",
    "xaibench.data.sure_of": "xaibench.benchmarks.select_confident",
    "xaibench.data.write_released": "xaibench.benchmarks.write_released",
    "xaibench.hub.BoardError": "xaibench.leaderboard.SiteError",
    "xaibench.hub.BuiltSite": "xaibench.leaderboard.BuiltSite",
    "xaibench.hub.ResultError": "xaibench.leaderboard.ResultError",
    "xaibench.hub.Verification": "xaibench.leaderboard.Verification",
    "xaibench.hub.Verified": "xaibench.leaderboard.VerifiedResult",
    "xaibench.hub.Words": "xaibench.leaderboard.SubmissionInfo",
    "xaibench.hub.check_result": "xaibench.leaderboard.check",
    "xaibench.hub.look": "xaibench.hub.inspect_remote",
    "xaibench.hub.results_of_run": "xaibench.leaderboard.split_run",
    "xaibench.hub.submit": "xaibench.leaderboard.submit",
    "xaibench.hub.verify": "xaibench.leaderboard.verify",
    "xaibench.hub.verify_all": "xaibench.leaderboard.verify_all",
    "xaibench.hub.write_board": "xaibench.leaderboard.write_site",
    "xaibench.metrics.Agreement": "xaibench.metrics.MetricAgreement",
    "xaibench.models.CNN": "xaibench.benchmarks.CNN",
    "xaibench.models.LLR": "xaibench.benchmarks.LLR",
    "xaibench.models.MLP": "xaibench.benchmarks.MLP",
    "xaibench.models.Normalise": "xaibench.models.Normalize",
    "xaibench.models.blind": "xaibench.benchmarks.blind",
    "xaibench.models.disconnected": "xaibench.benchmarks.disconnected",
    "xaibench.models.triggered": "xaibench.benchmarks.triggered",
}


def new_name(old: str, known: Iterable[str]) -> str | None:
    """Return the new name of a part, parameter or option, if it is among the known names.

    Args:
        old: A name that is not known.
        known: The names that are accepted in its place.

    Example:
        >>> new_name("N", ["n_masks", "grid_size"]), new_name("N", ["n_steps"])
        ('n_masks', None)
    """
    known = set(known)
    return next((new for new in RENAMED.get(old, ()) if new in known), None)
