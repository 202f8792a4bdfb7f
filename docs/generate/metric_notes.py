"""What docs/metrics.md says beside the docstrings: what to mind about each metric, and what went wrong elsewhere."""

from __future__ import annotations

#: What to mind, metric by metric.
PITFALLS = {
    "emd_perf": (
        "Mass that lies near counts nearly as much as mass that hits, so that whatever is spread over the "
        "image scores high, and the gaps between methods are small: read it beside the controls, not beside "
        '1. The released code divides by √(2HW) and so lifts every score (`diameter="released"`).'
    ),
    "emd": (
        "In pixels: images of different sizes do not compare. At 224×224 the exact distance takes some twenty "
        "seconds a map; `exact=False` gives bounds ([more](emd.md))."
    ),
    "topk_precision": (
        "k is the size of the ground truth, which a box or a generous outline makes larger than what the "
        "network needs. In XAI-TRIS's LIN and MULT the absent shape is ground truth, too: a map that marks "
        "only the shape that is there scores about one half."
    ),
    "mass_accuracy": (
        "One single pixel inside scores 1. Small values over a large background add up, so that noisy maps "
        "lose more here than by ranks."
    ),
    "iou": (
        "A score of the threshold as much as of the map. Give all methods one threshold, on maps that are "
        "scaled alike; [suites](saliency-bench.md#how-maps-are-cut) name theirs. Maps with a few high peaks "
        "mark next to nothing at half of their maximum."
    ),
    "precision": (
        "Undefined where nothing is above the threshold, where IoU and recall are 0: compare methods on the "
        "samples where all are defined. One marked pixel inside scores 1."
    ),
    "recall": (
        "A map that marks everything scores 1: read it beside precision, at the same threshold, which is not "
        "the default of both."
    ),
    "f1": ("Within a sample it ranks maps as IoU does; means of the two may still rank methods differently."),
    "hit": (
        "One pixel decides, and of a signed map the largest, not the one of largest magnitude. Photographers "
        "put things in the middle: the `centre` control hits often. Papers take a tolerance of 15 pixels, or "
        "none: say which."
    ),
    "auc": (
        "Where the ground truth is small, nearly all pixels outside are easy, and a map whose top pixels all "
        "miss may still score 0.9; `average_precision` looks at the top."
    ),
    "average_precision": (
        "The chance level is the share of the image that is marked: sets with objects of other sizes do not compare."
    ),
    "sparseness": (
        "Says nothing of right or wrong: one wrong pixel is as sparse as one right one. Maps enlarged from a "
        "coarse layer (the CAM family) are dense by construction."
    ),
    "complexity": ("As of `sparseness`. It grows with the logarithm of the number of pixels."),
    "deletion": (
        "An image with holes is none that the network has seen, and its score falls for that reason, too; "
        "`road` tries to mend it. A baseline of 0 is black where pixels are in [0, 1], the mean colour where "
        "they are normalised. A signed map's negative pixels go last: pass magnitudes if that is meant. The "
        "score depends on how sure the network is, so compare methods on one network, not networks."
    ),
    "insertion": (
        "A blurred image still shows what is large, so that the curve may begin high. Smooth maps put whole "
        "regions in, scattered ones single pixels on a blur: it favours the former, at equal rightness."
    ),
    "average_drop": (
        "Values count, not ranks: a map that is 1 everywhere but at one pixel dims nothing and drops nothing. "
        "Negative parts are scaled into [0, 1] as well; a map's zero may become 0.5."
    ),
    "increase_in_confidence": (
        "A probability near 1 can hardly rise, so that on a confident network few samples decide. Yes or no, "
        "whatever the size of the rise."
    ),
    "comprehensiveness": (
        "A network that finds its class in either of two places loses nothing when one is erased: a right map "
        "may score 0. Erased images are unusual ones, as with `deletion`; the fraction decides much."
    ),
    "sufficiency": (
        "A network that answers this class for an empty image finds everything sufficient. Negative where the "
        "rest of the image speaks against the class."
    ),
    "adversarial": (
        "With a large epsilon any pixels do: report the control beside it. Epsilon is in the units of the "
        "images as given. A network without a useful gradient looks robust."
    ),
    "infidelity": (
        "In squares of the score: networks of different sureness do not compare. The perturbation must fit "
        "what the map means, shares or slopes; with the wrong one a right map scores badly."
    ),
    "road": (
        'With `order="both"` a random map scores about 0, whatever the network. The scores of `both`, `morf` '
        "and `lerf` have different ranges: name the order. The solver runs on the CPU."
    ),
    "data_consistency": (
        "An explainer that ignores the image is perfectly consistent: read it beside a metric of rightness. "
        "Without `relative=True`, an explainer with small values scores well for that alone."
    ),
    "sensitivity_max": (
        "A maximum over draws only grows with their number: compare at equal `n_samples`. The radius is in "
        "the units of the images. An explainer that ignores the image scores best."
    ),
    "parameter_randomisation": (
        "A map of pure noise scores as well as a good one: it is a test to pass, not a ranking. Methods that "
        "multiply by the image keep its structure whatever the network. For maps whose sign is arbitrary take "
        "`magnitude=True`."
    ),
}

#: What went wrong elsewhere, and the test (of tests/metrics) that keeps it from happening here.
CASES = [
    (
        "Quantus",
        "writes `nan` into a bool array: an empty mask is a pointing-game hit",
        "test_quantus_empty_mask_is_not_a_hit",
    ),
    (
        "Quantus",
        "any of the tied maxima may hit: a constant map always does",
        "test_quantus_constant_map_does_not_always_hit",
    ),
    ("Quantus", "ROAD averages over the first batch only", "test_quantus_road_of_the_first_batch_is_not_that_of_all"),
    (
        "Quantus",
        "scales by the largest value of the batch: a score depends on the neighbours",
        "test_quantus_neighbours_do_not_change_a_score",
    ),
    (
        "Quantus",
        "mass accuracy of signed maps leaves [0, 1]",
        "test_quantus_mass_of_signed_maps_leaves_its_range_and_ours_does_not",
    ),
    (
        "Quantus",
        "adds 1e-9 to the mass of a map, so that its scale counts",
        "test_quantus_epsilon_does_not_lower_the_mass_of_small_maps",
    ),
    ("Quantus", "adds 1e-7 to every value: a zero map is perfectly dense", "test_quantus_zero_map_has_no_score"),
    (
        "Quantus",
        "adds 1e-7 to every value: small maps lose their sparseness",
        "test_quantus_epsilon_does_not_blur_small_maps",
    ),
    ("Quantus", "takes the logarithm of negative shares", "test_quantus_negative_values_do_not_break_the_entropy"),
    (
        "TorchRay",
        "asks for less than the tolerance: at 0 nothing hits",
        "test_torchray_tolerance_is_a_disc_and_counts_its_edge",
    ),
    (
        "xaibenchmark",
        "cuts IoU and precision at 0, recall at 0.5",
        "test_published_thresholds_are_the_defaults_and_one_may_be_given_to_all",
    ),
    (
        "xaibenchmark",
        "a missing annotation is a zero mask, which scores 0",
        "test_published_empty_mask_is_no_score_of_zero",
    ),
    ("Saliency-Bench", "misprints the denominator of F1", "test_published_misprint_of_f1_is_not_followed"),
    (
        "Saliency-Bench",
        "prints one formula for comprehensiveness and sufficiency",
        "test_saliency_bench_prints_one_formula_for_both_and_they_differ",
    ),
    ("ERASER", "averages over five shares and divides by six", "test_eraser_divides_five_shares_by_six_and_we_by_five"),
    (
        "XAI-TRIS code",
        "divides the EMD by sqrt(2HW) instead of the largest distance",
        "test_emd_perf_divides_by_the_diameter",
    ),
    (
        "XAI-TRIS code",
        "leaves zero maps out, so that methods are scored on different samples",
        "test_released_scoring_drops_zero_maps_and_ours_keeps_them_as_nan",
    ),
    (
        "XAI-TRIS code",
        "ranks tied pixels as a sort leaves them",
        "test_released_topk_precision_sees_where_ties_are_and_ours_does_not",
    ),
    ("Captum", "sensitivity of a zero map is divided by one", "test_captum_zero_map_has_no_sensitivity"),
    ("Captum", "draws noise by the place in the batch", "test_captum_draws_by_the_place_in_the_batch_and_we_do_not"),
    ("Captum", "infidelity expands the square, which cancels", "test_captum_expansion_cancels_and_ours_does_not"),
    (
        "pytorch-grad-cam",
        "drop in confidence is neither scaled nor relative",
        "test_grad_cam_drop_is_neither_scaled_nor_relative_and_ours_is",
    ),
    (
        "pytorch-grad-cam",
        "ROAD removes tied pixels together, however many",
        "test_grad_cam_removes_tied_pixels_together_and_we_do_not",
    ),
    ("torch-cam", "counts or divides a drop from nothing", "test_torch_cam_drop_of_a_negative_output_is_undefined"),
    (
        "torchmetrics",
        "takes metrics of equal first batches for one, and goes on with one of them",
        "test_torchmetrics_does_not_take_equal_first_batches_for_equal_metrics",
    ),
]
