import pytest

from xaibench.models.building import as_it_comes


@pytest.mark.parametrize(
    ("name", "stated", "built"),
    [
        ("efficientnet_lite0", {}, {"head": "pretrained"}),
        ("timm:resnet18", {"weights": "mine.pth"}, {"weights": "mine.pth", "head": "pretrained"}),
        ("resnet50", {"head": "new"}, {"head": "new"}),
        ("vgg16", {"fold": "pet"}, {"fold": "pet"}),
        ("cnn", {}, {}),
        ("generators.networks:Small", {}, {}),
        ("disconnected:resnet18", {"side": 3}, {"side": 3}),
    ],
)
def test_what_is_not_trained_keeps_the_last_layer_of_its_weights(name, stated, built):
    assert as_it_comes(name, stated) == built
