"""A TorchScript file is a program: what could do more than compute is not run."""

import warnings

import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.models import open_network
from xaibench.models.opening import torchscript

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Writes(nn.Module):
    """Write a file when it is called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 3)

    def forward(self, x):
        written = torch.from_file("written", True, 8, dtype=torch.uint8)
        return self.layer(x.flatten(1)) + written.sum() * 0


class WritesWhenLoaded(nn.Module):
    """Restore the state of a part, which runs before any pass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 3)

    def forward(self, x):
        return self.layer(x.flatten(1))

    @torch.jit.export
    def __getstate__(self):
        return (self.layer.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        written = torch.from_file("written", True, 8, dtype=torch.uint8)
        self.layer.weight = state[0] + written.sum() * 0
        self.training = state[1]


class Saves(Writes):
    def forward(self, x):
        torch.save(x, "written")
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("kind", [Writes, WritesWhenLoaded, Saves])
def test_a_program_that_writes_files_is_not_opened(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    torch.jit.script(kind()).save("net.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        refused(ValueError, "save" if kind is Saves else "from_file", lambda: open_network("net.pt", size=8))
        refused(ValueError, "net.py", lambda: open_network("net.pt", size=8))
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt"]


@pytest.mark.parametrize(
    ("program", "unsafe"),
    [
        ("x = torch.from_file(name)", "from_file"),
        ("t = torch\nt . # a comment\n save(x)", "save"),
        ("x = ops.image.read_file(name)", "ops.image.read_file"),
        ("o = ops\nx = o.image.read_file(name)", "ops"),
        ("x = rpc_sync(name)", "rpc_sync"),
        ("_0 : __torch__.torch.classes.dist_c10d.Store", "torch.classes.dist_c10d.Store"),
        ("x = ops.torchvision.nms(boxes) + ops.quantized.linear(x)", None),
        ("x = torch.conv2d(x, self.saved, None)\ny = (self.ops.layer).forward(x)", None),
        ("packed : __torch__.torch.classes.quantized.Conv2dPackedParamsBase", None),
    ],
)
def test_names_that_do_more_than_compute_are_found(program, unsafe):
    found = torchscript._UNSAFE.search(program)
    assert (found is None) == (unsafe is None)
    assert unsafe is None or unsafe in found.group()


def test_what_only_computes_is_opened_with_a_warning(tmp_path):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(4, 2)).eval()
    for index, module in enumerate((torch.jit.script(network), torch.jit.trace(network, torch.rand(2, 3, 8, 8)))):
        file = tmp_path / f"net{index}.pt"
        module.save(file)
        with pytest.warns(UserWarning, match="runs when it is opened") as shown:
            opened = open_network(str(file), size=8)
        assert shown[0].filename == __file__
        torch.testing.assert_close(opened.module(torch.ones(1, 3, 8, 8)), network(torch.ones(1, 3, 8, 8)))
