"""Write the tables and the picture of docs/watermarks.md from a run of the suite.

xaibench run watermarks && python docs/generate/watermarks.py runs/watermarks
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from csv_tables import csv_link
from numpy.typing import NDArray
from papers import table
from PIL import Image, ImageDraw, ImageFont

import xaibench as xb
from xaibench.benchmarks import watermark_use
from xaibench.benchmarks.claims import all_claims
from xaibench.benchmarks.watermarks.regimes import REGIMES
from xaibench.report.claims import claims, paired_scores
from xaibench.report.figures.samples import palette
from xaibench.report.page.sample_browser import levels
from xaibench.report.read.results import RunResults, read_run
from xaibench.statistics import explained_variance, rank_share

CLAIMS, NETWORK = all_claims()["watermarks"], "small_cnn"
DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "watermarks.md", DOCS / "images" / "watermarks.png"
START, END = "<!-- {} -->\n", "<!-- until here -->\n"
#: Columns of the picture, size of a tile in pixels, and margins for the names.
DRAWN = ("integrated_gradients", "lrp_alpha_beta", "deconvolution", "gradcam", "sobel")
TILE, HEADER, LEFT = 98, 54, 88
#: Legible on light pages and on dark ones.
INK = "#808080"
FORMS = {"bright": "", "inverted": "-inverted"}
#: Explainers on the page; the CSV file has all.
SHOWN = (
    *("integrated_gradients", "gradient_shap", "deconvolution", "lrp", "lrp_alpha_beta"),  # the five of the paper
    *("saliency", "input_x_gradient", "smoothgrad", "guided_backprop", "deep_taylor", "gradcam", "occlusion", "lime"),
    *("shapley_sampling", "rise", "pattern_attribution", "sobel", "laplace", "input", "uniform"),
)
#: Effect sizes in quantitative_hypotheses.ipynb of braindatalab/debugging_xai: confounder, suppressor, none.
PAPER = {
    "integrated_gradients": (0.954, 0.955, 0.955),
    "gradient_shap": (0.954, 0.952, 0.955),
    "deconvolution": (0.905, 0.729, 0.942),
    "lrp": (0.955, 0.955, 0.957),
    "lrp_alpha_beta": (0.949, 0.943, 0.946),
    "laplace": (0.998, 0.998, 0.998),
    "sobel": (0.997, 0.997, 0.997),
    "input": (0.491, 0.491, 0.491),
}
Floats = NDArray[np.float64]


def over_networks(compute: Callable[[Floats], float], scores: Floats) -> str:
    """Return a number of all scores ``[D, G, 2]``, with its range over the networks."""
    each = [compute(one[None]) for one in scores]
    return f"{compute(scores):.2f} [{min(each):.2f}, {max(each):.2f}]"


def shown_mean(scores: Floats) -> float:
    return float(np.nanmean(scores[..., 0]))


def effect(scores: Floats) -> float:
    return rank_share(scores[..., 0].ravel(), scores[..., 1].ravel())


def use_table(run: RunResults) -> str:
    """Return how much the output of each network changes with the watermark."""
    head = ["watermark in training", "intensities", "change", "changed class", "accuracy, with", "accuracy, without"]
    rows = []
    for form, ending in FORMS.items():
        for regime in REGIMES:
            uses = []
            trained = run.trainings[run.trainings["model"] == NETWORK]
            trained = trained[(trained["subset"] == regime) & (trained["variant"] == form)]
            for data_seed, seed in sorted(zip(trained["data_seed"], trained["seed"], strict=True)):
                name = f"watermarks/{regime}{ending}"
                network = xb.published_network(name, NETWORK, data_seed=int(data_seed), seed=int(seed))
                uses.append(watermark_use(network, xb.load(name, seed=int(data_seed), n_samples=1000).test))
            changes = [use.magnitude for use in uses]
            shares = [
                [100 * getattr(use, what) for use in uses]
                for what in ("flipped", "accuracy_watermarked", "accuracy_plain")
            ]
            rows.append([f"`{regime}`", form, f"{np.mean(changes):.2f} [{min(changes):.2f}, {max(changes):.2f}]"])
            rows[-1] += [f"{np.mean(each):.0f} % [{min(each):.0f}, {max(each):.0f}]" for each in shares]
    return table(head, rows)


def importance_rows(run: RunResults) -> Iterator[list[str]]:
    """Yield explainer, importance in each regime, R² of presence and class, inverted, and blinded network."""
    scores = paired_scores(run, CLAIMS, "relative_importance")
    cells = {(regime, form): scores.get((regime, form, NETWORK), {}) for regime in REGIMES for form in FORMS}
    seen = run.scores[(run.scores["metric"] == "mass_outside")].groupby("explainer", observed=True)["value"].mean()
    for name in run.explainers:
        bright = [cells[regime, "bright"].get(name) for regime in REGIMES]
        if any(each is None or np.isnan(each).all() for each in bright):
            continue
        presence = min(explained_variance([each[..., 0], each[..., 1]]) for each in bright)
        of_class = explained_variance([bright[0][..., 0], bright[1][..., 0]])
        dark = [cells[regime, "inverted"][name] for regime in REGIMES]
        ratio = np.mean([shown_mean(one) / shown_mean(other) for one, other in zip(dark, bright, strict=True)])
        yield [
            name,
            *(over_networks(shown_mean, each) for each in bright),
            *("–" if np.isnan(number) else f"{number:.2f}" for number in (presence, of_class, ratio)),
            f"{seen[name]:.2f}" if name in seen.index else "–",
        ]


def effect_table(run: RunResults) -> str:
    """Return the effect sizes of the paper next to the effect sizes of the run."""
    scores = paired_scores(run, CLAIMS, "relative_importance")
    head = ["explainer", *(f"{regime}, {whose}" for regime in REGIMES for whose in ("paper", "here"))]
    rows = []
    for name, published in PAPER.items():
        ours = [over_networks(effect, scores[regime, "bright", NETWORK][name]) for regime in REGIMES]
        pairs = zip(published, ours, strict=True)
        rows.append([f"`{name}`", *(text for number, mine in pairs for text in (f"{number:.2f}", mine))])
    return table(head, rows)


def claim_table(run: RunResults) -> str:
    """Return the statements with their verdicts."""
    head = ["statement", "number", "value [95 % interval]", "holds if", "verdict"]
    found = [
        [
            one.statement,
            one.quantity,
            f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]",
            one.bound_text,
            one.verdict_text,
        ]
        for one in claims(run)
    ]
    return table(head, found).replace("--:", "---")


def draw(seed: int = 0) -> None:
    """Draw one image with the watermark, and its maps for the network of each regime."""
    images, _, targets = xb.load("watermarks/none", seed=seed, n_samples=1000).test[:1]
    canvas = Image.new("RGBA", (LEFT + (1 + len(DRAWN)) * TILE, HEADER + len(REGIMES) * TILE))
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(13)
    for column, name in enumerate(("image", *DRAWN)):
        place = (LEFT + (column + 0.5) * TILE, HEADER - 6)
        pen.multiline_text(place, name.replace("_", "\n"), INK, font, anchor="md", align="center", spacing=1)
    for row, regime in enumerate(REGIMES):
        network = xb.published_network(f"watermarks/{regime}", NETWORK, data_seed=seed)
        pen.text((LEFT - 8, HEADER + (row + 0.5) * TILE), regime, INK, font, anchor="rm")
        tiles = [np.rint(255 * images[0, 0].numpy()).astype(np.uint8)[..., None].repeat(3, -1)]
        for name in DRAWN:
            found = xb.explain(name, network, images, targets, device="cpu", output=None)[0]
            tiles.append(palette()[levels(found.abs().numpy()) & 0xF0])
        for column, tile in enumerate(tiles):
            picture = Image.fromarray(tile).resize((TILE - 2, TILE - 2), Image.Resampling.NEAREST)
            canvas.paste(picture, (LEFT + column * TILE, HEADER + row * TILE))
    canvas.quantize(40, method=Image.Quantize.FASTOCTREE).save(PICTURE, optimize=True)


def main(folder: Path) -> None:
    run = read_run(folder)
    head = ["explainer", *REGIMES, "R² presence", "R² class", "inverted / bright", "blinded"]
    rows = list(importance_rows(run))
    link = csv_link("watermarks-importance", "All explainers (CSV)", head, rows)
    listed = table(head, [[f"`{name}`", *rest] for name, *rest in rows if name in SHOWN])
    blocks = {
        "use": use_table(run),
        "importance": f"{listed}\n\n{link}",
        "effect sizes": effect_table(run),
        "claims": claim_table(run),
    }
    text = PAGE.read_text(encoding="utf-8")
    for title, made in blocks.items():
        before, found, rest = text.partition(START.format(title))
        if not found:
            raise SystemExit(f"{PAGE} has no line {START.format(title)!r}")
        text = f"{before}{found}\n{made}\n\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(text, encoding="utf-8")
    draw()
    print(f"wrote {PAGE} and {PICTURE}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
