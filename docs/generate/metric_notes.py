"""Problems of other implementations, for docs/metrics.md."""

from __future__ import annotations

#: Library, problem, and the test (in tests/metrics) that makes sure that it does not occur here.
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
        "scales by the largest value of the batch: a score depends on the neighbors",
        "test_quantus_neighbors_do_not_change_a_score",
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
        "precision is `nan` if one map of many has nothing above 0",
        "test_published_precision_is_lost_by_one_empty_map_and_ours_is_not",
    ),
    (
        "xaibenchmark",
        "any of the tied maxima may hit: a constant map always does",
        "test_published_constant_map_always_hits_and_here_it_does_not",
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
