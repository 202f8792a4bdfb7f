import contextlib
import inspect
import logging

import numpy as np
import pytest
from refusals import refused

from xaibench.data.annotated import MissingDataError


def test_a_set_is_found_below_root_in_the_first_folder_that_has_its_marker(painted_set):
    part, root = painted_set()
    assert part.find(root) == root / "painted"
    (root / "painted" / "v2").mkdir()
    assert part.find(root) == root / "painted"
    (root / "painted" / "v2" / "list.txt").touch()
    assert part.find(root) == root / "painted" / "v2"


def test_root_comes_from_the_environment_and_the_argument_wins(painted_set, monkeypatch, tmp_path_factory):
    part, root = painted_set()
    monkeypatch.setenv("XAIBENCH_DATA", str(root))
    assert len(part().train) == 24
    refused(MissingDataError, "list.txt", lambda: part(root=tmp_path_factory.mktemp("empty")))


def test_no_root_at_all_says_where_to_give_it(painted_set, monkeypatch):
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    part, _ = painted_set()
    refused(MissingDataError, "XAIBENCH_DATA", lambda: part())


def test_download_is_tried_once_and_only_when_the_set_is_missing(painted_set, tmp_path, monkeypatch):
    part, root = painted_set()
    calls = []

    def download(base, progress=None):
        calls.append(base)
        (base / "painted").mkdir(parents=True)
        (base / "painted" / "list.txt").touch()

    monkeypatch.setattr(part, "download", download)
    monkeypatch.setattr(part, "archives", ["of which there is one"])
    part(root=root, download=True)
    assert calls == []
    part(root=tmp_path / "new", download=True)
    assert calls == [tmp_path / "new"]


def test_what_another_process_downloaded_meanwhile_is_not_downloaded_again(painted_set, tmp_path, monkeypatch):
    part, root = painted_set()

    @contextlib.contextmanager
    def one_process(folder, name):
        (root / "painted" / "list.txt").rename(root / "painted" / "new.txt")
        yield

    part.marker = "new.txt"
    monkeypatch.setattr("xaibench.data.disk.annotated_set.one_process", one_process)
    monkeypatch.setattr(part, "archives", ["of which there is one"])
    monkeypatch.setattr(part, "download", lambda base: pytest.fail("it is there"))
    assert part.find(root, download=True) == root / "painted"


def test_unannotated_samples_are_left_out_and_counted(painted_set, painted, caplog):
    part, root = painted_set(painted([0, 1] * 20, annotated=np.arange(40) >= 8))
    with caplog.at_level(logging.INFO, "xaibench"):
        dataset = part(root=root)
    assert sum(len(split) for split in (dataset.train, dataset.val, dataset.test)) == 32
    assert "8 of 40 samples have no annotation" in caplog.text
    whole = part(root=root, include_unannotated=True)
    notes = [note for split in (whole.train, whole.val, whole.test) for note in split.meta]
    assert len(notes) == 40
    assert sum(not note["annotated"] for note in notes) == 8
    for split in (whole.train, whole.val, whole.test):
        _, masks, _ = split[:]
        assert masks.flatten(1).any(1).tolist() == [note["annotated"] for note in split.meta]


def test_a_class_without_images_is_named(painted_set, painted):
    part, root = painted_set(painted([0] * 20))
    refused(MissingDataError, "'b'", lambda: part(root=root))


def test_the_sets_own_parameters_stand_in_its_signature(painted_set):
    part, root = painted_set()
    taken = inspect.signature(part).parameters
    assert taken["shade"].default == 1.0
    assert "own" not in taken
    assert part(root=root).parameters["shade"] == 1.0
    assert part(root=root, shade=0.5).parameters["shade"] == 0.5
    refused(TypeError, "'shad'", lambda: part(root=root, shad=1))


def test_info_tells_the_chosen_size(painted_set):
    part, root = painted_set()
    assert part(root=root, size=10).info.image_shape == (3, 10, 10)
    assert part(root=root).classes == ("a", "b")
