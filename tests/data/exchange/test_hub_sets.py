"""``load("hf://...")`` against a stand-in for the Hub."""

import shutil

import pytest
import torch
from generators.hub import Repo, hub, set_constants, set_endpoint  # noqa: F401

import xaibench as xb
from xaibench.data import write_parquet
from xaibench.data.annotated import MissingDataError
from xaibench.data.exchange.hub_sets import HubAddress

NAME = "xai-tris/rigid-corr-8x8"


@pytest.fixture
def shelf(hub, tmp_path):  # noqa: F811
    """A function that puts the set of a seed into ``ann/sets``, and returns it with the name of its commit."""
    hub.repos["ann/sets"] = repo = Repo(private=False)

    def put(seed=0):
        dataset = xb.load(NAME, seed=seed, n_samples=100)
        folder = tmp_path / f"set-{seed}"
        files = write_parquet(dataset, folder)
        content = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
        repo.branches["main"] = sha = repo.commit(content | {"README.md": b"not needed"})
        return dataset, sha

    return put


def assert_same(one, other):
    assert (one.info, dict(one.parameters)) == (other.info, dict(other.parameters))
    for part in ("train", "val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(one, part)[:], getattr(other, part)[:], strict=True))


def downloads(hub):  # noqa: F811
    return [path for method, path, *_ in hub.requests if method == "GET" and "/resolve/" in path]


def test_load(hub, shelf):  # noqa: F811
    dataset, _ = shelf()
    assert_same(xb.load("hf://ann/sets"), dataset)
    assert sorted(path.rpartition("/")[2].partition("-")[0] for path in downloads(hub)) == [
        "test",
        "train",
        "validation",
    ]
    assert xb.data.DATASETS.resolve("hf://datasets/ann/sets").info == dataset.info
    assert_same(xb.load("hf://ann/sets"), dataset)
    assert len(downloads(hub)) == 3  # the rest came from the cache


def test_a_revision_stays_when_the_branch_moves(shelf):
    first, sha = shelf(0)
    second, _ = shelf(1)
    assert_same(xb.load("hf://ann/sets"), second)
    assert_same(xb.load(f"hf://ann/sets@{sha}"), first)
    assert_same(xb.load("hf://ann/sets@main"), second)


def test_without_a_network_the_cache_is_used(hub, shelf):  # noqa: F811
    dataset, _ = shelf()
    xb.load("hf://ann/sets")
    hub.fail["."] = 503
    assert_same(xb.load("hf://ann/sets"), dataset)


@pytest.mark.parametrize("offline", [False, True])
def test_without_a_network_and_a_cache(hub, shelf, monkeypatch, offline):  # noqa: F811
    shelf()
    if offline:
        set_constants(monkeypatch, HF_HUB_OFFLINE=True)
    else:
        set_endpoint(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(
        MissingDataError, match=r"hf://ann/sets cannot be loaded: the Hub cannot be reached.* unset HF_HUB_OFFLINE"
    ):
        xb.load("hf://ann/sets")


def test_a_private_set_needs_the_token(hub, shelf, monkeypatch, tmp_path):  # noqa: F811
    dataset, _ = shelf()
    hub.repos["ann/sets"].private = True
    assert_same(xb.load("hf://ann/sets"), dataset)
    monkeypatch.delenv("HF_TOKEN")
    shutil.rmtree(tmp_path / "hf-cache")
    with pytest.raises(MissingDataError, match=r"no dataset repository ann/sets, or it is private.*hf auth login"):
        xb.load("hf://ann/sets")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://ann/setz", r"hf://ann/setz cannot be loaded: there is no dataset repository ann/setz, or it is private"),
        ("hf://ann/sets@v9", r"hf://ann/sets@v9 cannot be loaded: it has no branch, tag or commit 'v9'"),
        ("hf://ann/other", r"hf://ann/other is not a data set of xaibench.*hub.load_results"),
    ],
)
def test_what_is_not_there(hub, shelf, address, message):  # noqa: F811
    shelf()
    hub.repos["ann/other"] = Repo(private=False)
    with pytest.raises(MissingDataError, match=message):
        xb.load(address)


def test_conditions_must_be_accepted(hub, shelf):  # noqa: F811
    shelf()
    hub.repos["ann/sets"].gated = True
    with pytest.raises(MissingDataError, match=r"its users have to accept conditions.* on the page of ann/sets"):
        xb.load("hf://ann/sets")


def test_a_hub_in_trouble(hub, shelf):  # noqa: F811
    shelf()
    hub.fail["/api/datasets"] = 418
    with pytest.raises(MissingDataError, match=r"the Hub returned HTTP status 418. Try again later"):
        xb.load("hf://ann/sets")


@pytest.mark.parametrize("bad", ["hf://sets", "hf://", "hf://a/b/c", "hf://ann/sets@", "hf://ann/se ts", "hf://@v1"])
def test_addresses_that_are_none(bad):
    with pytest.raises(ValueError, match=r"expected hf://owner/name or hf://owner/name@revision"):
        xb.load(bad)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://ann/sets", HubAddress("ann/sets")),
        ("ann/sets@v1", HubAddress("ann/sets", "v1")),
        ("hf://datasets/ann/sets@refs/pr/3", HubAddress("ann/sets", "refs/pr/3")),
    ],
)
def test_addresses(text, address):
    assert HubAddress.parse(text) == address
    assert HubAddress.parse(str(address)) == address
