"""Write docs/datasets.md from the registered data sets: ``python docs/generate/data_sets.py``."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from xaibench.data import DATASETS
from xaibench.data.annotated import AnnotatedSet
from xaibench.data.own_volumes import OwnVolumes
from xaibench.data.photographs.image_folder import OwnFolder
from xaibench.data.photographs.saliency_bench_release import SaliencyBenchRelease

PAGE = Path(__file__).parents[1] / "datasets.md"

HEAD = """# Data sets

Choose a data set and get it. There are two kinds: [XAI-TRIS](#xai-tris) sets, [watermarks](#watermarks) and
[creatures](#creatures) are generated, and their important pixels are known by construction; eight
[annotated sets](#the-eight-annotated-sets) of photographs and scans are read from their official downloads. A
[folder](#folderdir) of your own is a data set, too. The *truth* of a set is one of [four kinds](truths.md): *data*
for generated sets, *human* for annotated sets and your folders (the default of `DatasetInfo`), *use* for images of
[certified networks](certified.md).

## XAI-TRIS

```python
import xaibench as xb

data = xb.load("xai-tris/xor-corr-8x8", seed=0)  # .train .val .test, all as in the paper
data = xb.load("xai-tris/lin-white-64x64", seed=0, alpha=0.05, n_samples=4000)
image, mask, target = data.test[0]  # [1,64,64] float32, [64,64] bool, int64
data = xb.load("xai-tris/rigid-imagenet-64x64", seed=0, images_dir="~/imagenet/val")
```

{tetromino} names, `xai-tris/SCENARIO-BACKGROUND-SIZE`: {scenarios}; {backgrounds}; 8x8, 64x64, and
[volumes](volumes.md) of 16x16x16 voxels without IMAGENET. WHITE and CORR are generated from `seed` without download,
{small} in memory at 8×8 (10,000 samples), {large} at 64×64 (40,000) and {volumes} at 16×16×16 (5,000), under the
license of this library. [XAI-TRIS](xai-tris.md) explains the scenarios.

`layout` sets the positions and orientations of T and L in LIN, MULT and XOR. 0 (the default) is the layout of the
paper, 1 to 976 are others in a fixed pseudorandom order, and larger numbers repeat them. In every layout, both
shapes keep the paper's margin to the border and do not overlap; other layouts share at most 2 of their 8 cells with
the paper's. A layout is the same on every machine and does not change the split. RIGID draws a position per sample
and ignores `layout`. Published checksums and networks are of layout 0.

IMAGENET uses the photographs of any folder (`xaibench run --images DIR`) with at least 64 pixels, which are scaled
once into `$XAIBENCH_CACHE`. If there are fewer photographs than samples, they are repeated within one split, so
that no background of a test sample is seen in training; the set and the page of a run state how often. The paper
uses the 50,000 validation images of ImageNet-1k ([6.7
GB](https://huggingface.co/datasets/presencesw/ILSVRC2012/tree/main)), available with an account from
[image-net.org](https://image-net.org/download.php) or [Hugging Face](https://huggingface.co/datasets/imagenet-1k)
for research only. [PASS](https://github.com/yukimasano/PASS) has CC BY images without people.

`xb.benchmarks.read_released` reads the pickles of the authors' [code](https://github.com/braindatalab/xai-tris)
(GPL; 1.5 GB at 64×64) without executing anything in them.

`pattern-gam/SCENARIO-BACKGROUND` are LIN, MULT and XOR at 8×8 with the signal-to-noise ratios of PatternGAM, with
(`lin-dist-white`, …) and without distractors (`lin-white`, …; [global explanations and distractors](pattern-gam.md)).
`whitened:KIND:NAME` is any set of small images with its pixels decorrelated ([whitening](whitening.md)).

## Watermarks

```python
data = xb.load("watermarks/confounder", seed=0)  # or suppressor, none; with -inverted
data.test.watermarked, data.test.plain  # the same images with and without the watermark
data = xb.load("watermarks:~/pets", regime="confounder", size=128)  # photographs in two class folders
```

A translucent watermark that tells the class in training, is noise, or is never there; test images are the same in
all three regimes, with and without it. The mask is the region of the watermark. `watermarks/REGIME` are generated
(1,000 images of 64×64 pixels), `watermarks:DIR` uses your photographs. [Watermarks](watermarks.md) has the results.

## Creatures

```python
data = xb.load("parts/creatures-96x96", seed=0)  # 3,000 images; or parts/creatures-224x224, 1,000 images
image, mask, target = data.test[0]  # [3,96,96] float32 in [0, 1]; the mask covers the parts that decide the class
data.test.part_masks(0)  # [7,96,96] bool: the visible pixels of each part
data.test.without(0, 6)  # [3,96,96]: the image without part 6, the wing
```

Creatures of seven parts on cluttered backgrounds, drawn by integer arithmetic from `seed` without download. Four parts
decide the class (8 classes), and every part can be removed. [Creatures of parts](parts.md) shows them and the suite
`parts`.

## The eight annotated sets

| name | where | download | by hand |
|---|---|---|---|
{where}
`xaibench prepare NAME --root DIR` reads a downloaded set, builds what is slow to build, and counts it. The human
masks of `gender` and `scene` come from the [Saliency-Bench](https://xaidataset.github.io) site;
[`published:DIR`](#publisheddir) reads its processed release (one zip per set on Google Drive).

```python
train, val, test = xb.loading("pascal", "aeroplane,bicycle,boat,bus", root="~/data")
images, attentions, class_ids = next(iter(train))  # [32,3,224,224], [32,224,224], [32]

data = xb.load("pet", root="~/data", classes="cat,dog", size=128)
data.test.meta[0]  # {{"id": ..., "file": ..., further fields of the set}}
```

    xaibench list datasets --root ~/data            # which are ready
    xaibench prepare pet --root ~/data --download   # fetch, build, count
    xaibench show pet --root ~/data --out pets.png  # images, masks and labels

The environment variable `XAIBENCH_DATA` replaces `root`. CT slices, consensus masks and the index of a million
X-rays are built once in `$XAIBENCH_CACHE` or `~/.cache/xaibench`; the command can be stopped and resumed.

All sets have the parameters `classes` (a string with commas, or a list; targets follow its order), `size`, `splits`
(three fractions, or `"official"`), `seed`, `normalize` (`"imagenet"`, or means and deviations), `transform` (any of
`torchvision.transforms.v2`, applied to image and mask together), `include_unannotated`, `missing` and `download`;
`loading` also `batch_size`, `num_workers` and `verbose`. Images are scaled bilinearly with antialiasing, masks by
the nearest pixel (a smaller object keeps the pixel that contains most of it). Samples without annotation or image
are left out and counted in the log; true negatives have an empty mask. Patients, and images that show two classes,
are never divided between splits.

| name | classes | truth | size in its publication | images in Saliency-Bench, April 2025 | own parameters |
|---|---|---|---|---|---|
"""

#: What the sizes in the current table of Saliency-Bench count.
AFTER_SIZES = """
Saliency-Bench counts 2,625 slices with a nodule and as many without for `lidc` (here `negatives=1`), 281 and 80 for
`tumor`, as many negatives as positives for `sixray` (here `balance=True`), and all images for `pet`, 41 of which
are not in `list.txt`; `gender`, `scene` and `glasses` have grown since the paper. [`published:DIR`](#publisheddir)
reads exactly its images.
"""


#: Parameters of every annotated set.
COMMON = inspect.signature(AnnotatedSet.__call__).parameters

VOLUMES = """
### Scans as volumes

```python
data = xb.load("lidc", root="~/data", volumes=True)  # crops of 32 slices of 64×64 pixels; also "tumor"
image, mask, target = data.test[0]  # [1,32,64,64] float32 in [0, 1], [32,64,64] bool, int64
data.test.meta[0]["spacing"]  # mm per voxel along D, H and W; metrics of distance get it from the split
for images, masks, targets in xb.loading("lidc", root="~/data", volumes=True, crop=None)[2]:
    ...  # whole scans, one at a time
```

The slices of a volume and their masks are those of the slice loader, voxel by voxel, from the same files, without
scaling. The axes are D (slices, from the feet to the head), H (rows) and W (columns). `crop=(D, H, W)` sets the size of
crops in voxels; beyond the border of a scan they are air (-1000 HU). `crop=None` loads whole scans, whose shapes
differ: a batch is one scan, read when it is needed. `splits` keeps patients together, who are also the groups of
intervals and tests. A crop that is smaller than its lesion and shows nothing of it is not annotated. Volumes have
`channels=1` by default and no `size`.

Entries of `data.test.meta[i]`:

- `spacing`: mm per voxel along D, H and W (the order of nnU-Net and SimpleITK arrays; nibabel and MONAI have x first).
  `data.test.metric_inputs(slice(None))["spacing"]` has all of them, `[n, 3]`.
- `orientation`: direction of increasing index along D, H and W, in the letters of nibabel's `aff2axcodes`. `"SPL"` is
  towards the head, the back and the patient's left. `tumor` is always reoriented to `"SPL"`; `lidc` keeps the pixels
  as stored, which is `"SPL"` for a patient in the usual position.
- `origin`, `padding`, `shape`: index of the first voxel of the crop in the scan, number of voxels before and after the
  scan per axis, and shape of the scan.
- `scan`, `patient`, `file`: names of the scan and the patient, and the first file.
- `spacing_deviation`: largest difference of a step between slices from `spacing[0]`, in mm.

DICOM slices are sorted by position. A step of more than 1.5 times the median is a gap; a crop across it and a whole
scan with one are left out with a warning. Steps that differ from the median by more than 5 % are named in a warning.
Scans that are not axial, or whose slices differ in orientation or spacing, are left out with a warning. What a crop is
centered on, and where crops without a lesion are, is described for each set below.
"""


def own_parameters(part: AnnotatedSet) -> str:
    """Return the parameters that only this set has, with their defaults."""
    known = inspect.signature(part).parameters.values()
    return ", ".join(f"`{one.name}={one.default!r}`" for one in known if one.name not in COMMON) or "none"


def row(name: str, part: AnnotatedSet) -> str:
    """Return the row of a set in the table."""
    classes = part.info.classes
    shown = ", ".join(classes) if len(classes) < 6 else f"{len(classes)}: {', '.join(classes[:4])}, ..."
    counts = ", ".join(f"{count:,} {what}" for what, count in part.info.published)
    known = f"{counts} | {part.info.benchmark_size:,}"
    return f"| [`{name}`](#{name}) | {shown} | {part.info.truth} | {known} | {own_parameters(part)} |\n"


def prose(part: type[AnnotatedSet]) -> str:
    """Return the docstring without its sections, with references to code as Markdown."""
    text = re.split(r"\n\n(?:Args|Attributes|Raises|Example):", inspect.getdoc(part) or "")[0]
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def section(title: str, part: type[AnnotatedSet], facts: str = "", level: int = 2) -> str:
    """Return the docstring of a set under a heading."""
    return f"\n{'#' * level} {title}\n\n{prose(part)}\n{facts}"


def facts(part: AnnotatedSet) -> str:
    """Return source, license, other names, and how to get the set."""
    wrapped = (textwrap.wrap(line, 100, break_on_hyphens=False) for line in part.info.how_to_get.splitlines())
    steps = "\n".join(line for lines in wrapped for line in lines)
    aliases = sorted(alias for alias, name in DATASETS._aliases.items() if name == part.info.name)
    other = f"- Also known as: {', '.join(f'`{alias}`' for alias in aliases)}\n" if aliases else ""
    listed = f"- Source: {part.info.citation}\n- License: {part.info.license}\n{other}"
    return f"\n{listed}\nHow to get it:\n\n```text\n{steps}\n```\n"


def megabytes(pixels: int, samples: int) -> str:
    """Return the size of a generated set: images in float32, masks in one byte."""
    return f"{samples * pixels * (4 + 1) / 1e6:.0f} MB"


def head(names: list[str]) -> str:
    """Return the part of the page before the sections of the sets."""
    tetromino = [name.partition("/")[2].split("-") for name in DATASETS if name.startswith("xai-tris/")]
    scenarios, backgrounds = (", ".join(dict.fromkeys(parts[place] for parts in tetromino)) for place in (0, 1))
    infos = {name: DATASETS.resolve(name).info for name in names}
    where = "".join(
        f"| [`{name}`](#{name}) | {info.address} | {info.download_size} | {info.by_hand} |\n"
        for name, info in infos.items()
    )
    return HEAD.format(
        tetromino=len(tetromino),
        scenarios=scenarios,
        backgrounds=backgrounds,
        small=megabytes(8**2, 10_000),
        large=megabytes(64**2, 40_000),
        volumes=megabytes(16**3, 5_000),
        where=where,
    )


def page() -> str:
    """Return the page."""
    sets = {name: part for name in DATASETS if isinstance(part := DATASETS.resolve(name), AnnotatedSet)}
    text = head(list(sets)) + "".join(row(name, part) for name, part in sets.items())
    text += AFTER_SIZES + VOLUMES
    text += "".join(section(name, type(part), facts(part), level=3) for name, part in sets.items())
    own = {"folder:DIR": OwnFolder, "volumes:DIR": OwnVolumes, "published:DIR": SaliencyBenchRelease}
    text += "".join(section(title, part) for title, part in own.items())
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
