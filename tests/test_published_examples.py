"""Figures 4 and 5 of the Saliency-Bench paper (arXiv 2310.08537), word for word but for the name that is imported."""

import numpy as np
import pytest
from generators.common import photograph, rectangle
from PIL import Image

FIGURE_4 = """
import xaibench as xaibenchmark
dataset = "pascal"
class_list = "aeroplane,bicycle,boat,bus"
train_dataloader, val_dataloader, test_dataloader = xaibenchmark.loading(dataset, class_list)
print("Show output size:")
for batch_id, (images, attentions, class_ids) in enumerate(train_dataloader):
    print(images.shape)
    print(attentions.shape)
    print(class_ids.shape)
    break
"""

FIGURE_5 = """
import numpy as np
import xaibench as xaibenchmark
# Generate random explanation maps and ground truths
num_samples, image_height, image_width = 16, 224, 224
maps = np.random.rand(num_samples, image_height, image_width)
gts = np.random.randint(0, 2, (num_samples, image_height, image_width))
iou_value = xaibenchmark.iou(maps, gts)
precision_value = xaibenchmark.precision(maps, gts)
recall_value = xaibenchmark.recall(maps, gts)
pointing_game = xaibenchmark.hit(maps, gts)
print("IoU: ", iou_value)
print("Precision: ", precision_value)
print("Recall: ", recall_value)
print("Pointing Game: ", pointing_game)
"""


@pytest.fixture
def voc(tmp_path, monkeypatch):
    """60 segmented images, 15 of each of the four classes."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "VOCdevkit" / "VOC2012"
    for place in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (folder / place).mkdir(parents=True)
    names = [f"2008_{number:06}" for number in range(60)]
    for number, name in enumerate(names):
        Image.fromarray(photograph(rng, 40, 50)).save(folder / "JPEGImages" / f"{name}.jpg")
        labels = Image.fromarray((rectangle(rng, 40, 50) * (1, 2, 4, 6)[number % 4]).astype(np.uint8))
        labels.putpalette([n // 3 for n in range(768)])
        labels.save(folder / "SegmentationClass" / f"{name}.png")
    for part, chosen in (("train", names[::2]), ("val", names[1::2]), ("trainval", names)):
        (folder / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(chosen) + "\n")
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))


def test_figure_4_prints_what_the_paper_prints(voc, capsys, caplog):
    with caplog.at_level("INFO", "xaibench"):
        exec(FIGURE_4, {})
    said = [line for line in caplog.messages if line.endswith(("...", "complete."))]
    assert said == ["Loading data...", "Splitting dataset...", "Creating dataloaders...", "Data loading complete."]
    assert capsys.readouterr().out.splitlines() == [
        "Show output size:",
        "torch.Size([32, 3, 224, 224])",
        "torch.Size([32, 224, 224])",
        "torch.Size([32])",
    ]


def test_figure_5_gives_the_published_relations(capsys):
    names = {"np": np}
    exec(FIGURE_5, names)
    assert len(capsys.readouterr().out.splitlines()) == 4
    shares = names["gts"].mean(axis=(1, 2))
    assert names["iou_value"] == names["precision_value"] == pytest.approx(shares.mean(), abs=1e-12)
    assert names["recall_value"] == pytest.approx(0.5, abs=0.005)
    assert names["pointing_game"] * 16 == pytest.approx(round(names["pointing_game"] * 16))
