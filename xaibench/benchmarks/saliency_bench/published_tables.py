"""The published tables of Saliency-Bench.

Zhang et al. (2023), XAI Benchmark for Visual Explanation, arXiv 2310.08537: Table 2 (accuracy of ResNet-18), Table 3
(scores of eight explainers on five data sets), Table 4 (correlation between metrics). The numbers are as printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The network of the paper's tables.
NETWORK = "resnet18"
#: The paper's data sets. Object-1 is bird, horse, sheep of PASCAL VOC; Object-2 aeroplane, car, bus.
SETS = {"gender": "Gender", "scene": "Scene", "pet": "Cat and Dog", "object1": "Object-1", "object2": "Object-2"}
#: Alternative names in a run, without case and punctuation.
_OTHER_NAMES = {"catdog": "pet", "catsdogs": "pet", "catanddog": "pet", "oxfordpet": "pet", "oxfordiiitpet": "pet"}
_OTHER_NAMES |= {f"{source}object{i}": f"object{i}" for source in ("pascal", "voc") for i in (1, 2)}

#: Table 2, in percent.
TABLE_2 = {"gender": 74.20, "scene": 94.40, "pet": 98.14, "object1": 87.12, "object2": 77.12}

TABLE_3_METRICS = ("iou", "precision", "recall", "hit", "insertion", "deletion")
#: Table 3: one row per data set and explainer, with a column for each of :data:`TABLE_3_METRICS`.
_TABLE_3 = """
gender   gradcam               .1304 .5371 .5677 .2901 .696 .129
gender   cam                   .1429 .5396 .5577 .3077 .688 .123
gender   gradcam++             .1417 .5379 .5644 .2906 .663 .152
gender   integrated_gradients  .3441 .7939 .7232 .2138 .363 .252
gender   guided_backprop       .3542 .8076 .7343 .2931 .397 .228
gender   input_x_gradient      .3403 .6345 .6712 .3011 .401 .248
gender   saliency              .3229 .7831 .6620 .3208 .381 .233
gender   rise                  .3416 .7875 .7285 .3307 .845 .101
scene    gradcam               .3656 .7637 .5096 .4777 .691 .110
scene    cam                   .3704 .7625 .4988 .3852 .711 .103
scene    gradcam++             .3632 .7637 .4977 .4224 .701 .104
scene    integrated_gradients  .5356 .8144 .6368 .2810 .511 .201
scene    guided_backprop       .4832 .8456 .5842 .3277 .582 .211
scene    input_x_gradient      .4566 .8272 .7043 .3010 .572 .226
scene    saliency              .5104 .8523 .6612 .3100 .491 .206
scene    rise                  .5428 .8675 .6674 .3624 .923 .109
pet      gradcam               .1599 .1641 .8116 .3121 .752 .343
pet      cam                   .1284 .1285 .8437 .3121 .736 .378
pet      gradcam++             .1236 .1239 .8349 .3434 .766 .351
pet      integrated_gradients  .3002 .3003 .9974 .1728 .399 .270
pet      guided_backprop       .3026 .3029 .9973 .2184 .472 .301
pet      input_x_gradient      .2808 .3062 .9244 .1892 .468 .317
pet      saliency              .2978 .3049 .9741 .2136 .422 .290
pet      rise                  .3094 .3095 .9987 .1628 .886 .236
object1  gradcam               .0518 .0518 .3808 .1993 .667 .351
object1  cam                   .0524 .0527 .3731 .1667 .613 .374
object1  gradcam++             .0515 .0516 .3664 .1933 .629 .378
object1  integrated_gradients  .1389 .3395 .4998 .2000 .397 .214
object1  guided_backprop       .1250 .3252 .4918 .1382 .440 .283
object1  input_x_gradient      .1312 .3553 .4010 .1640 .433 .291
object1  saliency              .1445 .3287 .4299 .1301 .303 .217
object1  rise                  .1423 .3423 .5266 .1400 .857 .211
object2  gradcam               .0527 .0529 .3719 .1976 .688 .396
object2  cam                   .0528 .0529 .3719 .1975 .692 .401
object2  gradcam++             .0533 .0533 .3708 .1976 .699 .398
object2  integrated_gradients  .1472 .1491 .9263 .1854 .375 .211
object2  guided_backprop       .1486 .1486 .9370 .1882 .510 .253
object2  input_x_gradient      .1312 .1442 .9344 .1929 .482 .241
object2  saliency              .1672 .1485 .9627 .1704 .375 .211
object2  rise                  .1586 .1595 .9373 .1881 .836 .288
"""
#: Table 3: ``{(set, explainer): {metric: score}}``.
TABLE_3: Mapping[tuple[str, str], Mapping[str, float]] = {
    (row[0], row[1]): dict(zip(TABLE_3_METRICS, map(float, row[2:]), strict=True))
    for row in (line.split() for line in _TABLE_3.split("\n") if line)
}

#: Table 4: ``{(metric, metric): {explainer: coefficient}}``, with lower-is-better metrics negated.
TABLE_4: Mapping[tuple[str, str], Mapping[str, float]] = {
    pair: dict(zip(("gradcam", "integrated_gradients", "rise"), values, strict=True))
    for pair, values in {
        ("insertion", "deletion"): (-0.5, -0.3, 0.1),
        ("insertion", "hit"): (0.6, 0.1, 0.3),
        ("insertion", "iou"): (0.7, 0.3, 0.3),
        ("deletion", "hit"): (-0.9, -0.6, -0.9),
        ("deletion", "iou"): (-0.8, -0.2, -0.6),
        ("hit", "iou"): (0.9, -0.1, 0.7),
    }.items()
}


def published_set(name: str) -> str | None:
    """Return the key of the paper's data set with this name, or None.

    Example:
        >>> [published_set(name) for name in ("pet", "pascal-object-1", "published:scene", "lidc")]
        ['pet', 'object1', 'scene', None]
    """
    plain = re.sub(r"[^a-z0-9]", "", re.split(r"[:/]", name.lower())[-1])
    key = _OTHER_NAMES.get(plain, plain)
    return key if key in SETS else None
