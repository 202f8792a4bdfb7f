"""What a score means, in a sentence or two for the page; metrics without one are described by their direction alone."""

MEANINGS = {
    "emd_perf": "One minus the earth mover’s distance between the map and the ground truth, both scaled to sum one, "
    "divided by the largest distance of two pixels. 1: all importance lies on the ground truth.",
    "topk_precision": "Of the k most important pixels, the share that lies in the ground truth, k being the number of "
    "pixels of the ground truth. 1: all of them.",
    "mass_accuracy": "Share of the map’s magnitude that lies in the ground truth. 1: all of it.",
    "iou": "Pixels that the map marks and the ground truth holds, over those that either does. 1: the same pixels.",
    "precision": "Share of the marked pixels that lie in the ground truth.",
    "recall": "Share of the ground truth’s pixels that are marked. A map that marks everything has 1.",
    "f1": "Harmonic mean of precision and recall.",
    "average_precision": "Precision averaged over the recall as the threshold falls: needs no threshold. Chance is the "
    "share of the image that the ground truth covers.",
    "auc": "Chance that a pixel of the ground truth scores higher than one outside. 0.5: no better than noise.",
    "hit": "Pointing game: whether the largest pixel of the map lies in the ground truth; ties share.",
    "insertion": "Mean score of the class while a blurred image gets its pixels back, most important first, all in the "
    "end.",
    "deletion": "Mean score of the class while the image loses its pixels, most important first, all in the end.",
    "average_drop": "How far the score of the class falls, in percent of it, when the image is multiplied by the map.",
    "increase_in_confidence": "Whether the score of the class rises when the image is multiplied by the map.",
    "comprehensiveness": "How far the score of the class falls without the most important pixels.",
    "sufficiency": "How far the score of the class falls when nothing but the most important pixels is left.",
}
