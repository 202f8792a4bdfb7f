"""Registry of the data sets. To add a data set, add a line."""

from __future__ import annotations

from xaibench.registry.table import Registry

#: Names in the published table of Saliency-Bench.
SALIENCY_BENCH = {
    "Gender-XAI": "gender",
    "Scene-XAI": "scene",
    "Glasses-XAI": "glasses",
    "Prohibited-XAI": "sixray",
    "Nodule-XAI": "lidc",
    "Tumor-XAI": "tumor",
    "Cat&Dog-XAI": "pet",
    "Object-XAI": "pascal",
}
#: Scenarios and backgrounds in the released code of XAI-TRIS, which names no size.
_SCENARIOS = {"linear": "lin", "multiplicative": "mult", "translations_rotations": "rigid", "xor": "xor"}
_BACKGROUNDS = {"uncorrelated": "white", "correlated": "corr", "imagenet": "imagenet"}

#: All data sets by name. A target is called with keyword parameters, including ``seed``, returns a
#: :class:`~xaibench.data.base.Dataset`, and has a :class:`~xaibench.types.DatasetInfo` as ``info``.
DATASETS = Registry(
    "data set",
    {
        f"xai-tris/{scenario}-{background}-{side}": (
            f"xaibench.benchmarks.xai_tris.tetrominoes:SETS.{scenario}_{background}_{side}"
        )
        for side in ("8x8", "64x64", "16x16x16")
        for scenario in ("lin", "mult", "rigid", "xor")
        for background in ("white", "corr", "imagenet")
        if (background, side) != ("imagenet", "16x16x16")
    }
    | {
        f"pattern-gam/{scenario}-{background}": (
            f"xaibench.benchmarks.pattern_gam.data_sets:SETS.{scenario}_{background.replace('-', '_')}"
        )
        for scenario in ("lin", "mult", "xor")
        for background in ("white", "corr", "dist-white", "dist-corr")
    }
    | {
        f"watermarks/{regime}{ending}": (f"xaibench.benchmarks.watermarks.generated:{regime}{ending.replace('-', '_')}")
        for ending in ("", "-inverted")
        for regime in ("confounder", "suppressor", "none")
    }
    | {
        f"parts/creatures-{side}x{side}": (f"xaibench.benchmarks.creatures.creature_images:creatures_{side}x{side}")
        for side in (96, 224)
    }
    | {
        "gender": "xaibench.data.photographs.coco_gender:gender",
        "scene": "xaibench.data.photographs.places_scene:scene",
        "glasses": "xaibench.data.photographs.celeba_glasses:glasses",
        "sixray": "xaibench.data.scans.sixray_luggage:sixray",
        "lidc": "xaibench.data.scans.lidc_nodules:lidc",
        "tumor": "xaibench.data.scans.pancreas_tumor:tumor",
        "pet": "xaibench.data.photographs.oxford_pet:pet",
        "pascal": "xaibench.data.photographs.pascal_voc:pascal",
    },
    aliases=SALIENCY_BENCH
    | {
        "voc": "pascal",
        "voc2012": "pascal",
        "pascal-voc": "pascal",
        "object": "pascal",
        "cats-dogs": "pet",
        "cat-dog": "pet",
        "oxford-pet": "pet",
        "oxford-iiit-pet": "pet",
        "pets": "pet",
        "coco": "gender",
        "coco-gender": "gender",
        "places": "scene",
        "places365": "scene",
        "eyeglasses": "glasses",
        "celeba": "glasses",
        "celebamask-hq": "glasses",
        "prohibited": "sixray",
        "nodule": "lidc",
        "nodules": "lidc",
        "lidc-idri": "lidc",
        "pancreas": "tumor",
        "tumour": "tumor",
    },
    schemes={
        "published": "xaibench.data.photographs.saliency_bench_release:SaliencyBenchRelease",
        "folder": "xaibench.data.photographs.image_folder:OwnFolder",
        "volumes": "xaibench.data.volume_folder:OwnVolumes",
        "photographs": "xaibench.data.photographs.image_folder:Photographs",
        "mosaic": "xaibench.benchmarks.mosaics.photo_mosaics:PhotoMosaics",
        "parquet": "xaibench.data.exchange.parquet:ParquetSet",
        "hf": "xaibench.data.exchange.hub_sets:HubSet",
        "whitened": "xaibench.benchmarks.whitening.whitened_sets:WhitenedSet",
        "watermarks": "xaibench.benchmarks.watermarks.photographs:WatermarkedPhotographs",
        "certified": "xaibench.benchmarks.certified.images:KnownImages",
    },
    hints={
        f"{scenario}_{background}": (
            f"'xai-tris/{_SCENARIOS[scenario]}-{_BACKGROUNDS[background]}-8x8' (or -64x64, the sizes of XAI-TRIS)"
        )
        for scenario in _SCENARIOS
        for background in _BACKGROUNDS
    },
)
