"""What a method imports beside the library is found, stated, and there for its sandbox alone."""

import importlib
import shutil
import sys
import zipfile
from importlib import metadata

import pytest
from leaderboard.forging import with_scores
from leaderboard.sandboxes import needs_sandbox

from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import ResultError, read_manifest
from xaibench.leaderboard.sandbox import packages as packages_module
from xaibench.leaderboard.sandbox.packages import ImportedPackages, imported_packages, provide_packages
from xaibench.leaderboard.score_files import MANIFEST, read_note
from xaibench.leaderboard.submission import SubmissionInfo, submit
from xaibench.leaderboard.verification import verify

CODE = """
import json, os.path
import torch, numpy.linalg
import helper_of_mine
from . import sibling
from helping.inner import doubled
try:
    import not_there_at_all
except ImportError:
    pass


def gxi(model, images, targets):
    "Gradient times input, doubled."
    images = images.clone().requires_grad_()
    model(images).gather(1, targets[:, None]).sum().backward()
    return doubled((images.grad * images).sum(1).detach())
"""


def wheel(folder, name, version, needs=""):
    """A package of one module, as the index would have it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as file:
        imported = f"import {needs}" if needs.isidentifier() else ""
        file.writestr(f"{module}/__init__.py", f"version = {version!r}\n{imported}")
        file.writestr(f"{module}/inner.py", "def doubled(maps):\n    return 2 * maps\n")
        depends = f"Requires-Dist: {needs}\n" if needs else ""
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{depends}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in file.namelist()))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder of wheels: `helping` in two versions, which needs `further`; and one that wants another torch."""
    folder = tmp_path_factory.mktemp("index")
    wheel(folder, "helping", "1.0", needs="further")
    wheel(folder, "helping", "2.0", needs="further")
    wheel(folder, "further", "3.0")
    wheel(folder, "clashing", "1.0", needs="torch<1")
    return folder


@pytest.fixture(autouse=True)
def alone(index, monkeypatch):
    """No index but that one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


@pytest.fixture
def installed(index, tmp_path, monkeypatch):
    """`helping` 1.0 and what it needs, as if they had been installed."""
    place = tmp_path / "site"
    for name in ("helping-1.0", "further-3.0"):
        with zipfile.ZipFile(index / f"{name}-py3-none-any.whl") as file:
            file.extractall(place)
    monkeypatch.syspath_prepend(str(place))
    importlib.invalidate_caches()
    yield place
    for name in [name for name in sys.modules if name.partition(".")[0] in ("helping", "further")]:
        del sys.modules[name]


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(CODE)
    (folder / "helper_of_mine.py").write_text("import broken (")  # says so when it is run
    return folder


def test_what_a_method_imports_is_found(code, installed):
    assert imported_packages(code) == ImportedPackages(("helping==1.0",))
    (installed / "helping-1.0.dist-info" / "direct_url.json").write_text('{"url": "file:///home/me/helping"}')
    assert imported_packages(code) == ImportedPackages((), ("helping",)), "nobody else may get it"
    (installed / "helping-1.0.dist-info" / "INSTALLER").write_text("conda\n")
    assert imported_packages(code) == ImportedPackages(("helping==1.0",)), "which leaves that file in every package"


def install_as_if(site, name, version, *files):
    """What an installer leaves of a package."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_of_packages_that_share_a_name_the_imported_one_is_found(code, tmp_path, monkeypatch):
    for name in ("one", "other", "others"):
        install_as_if(tmp_path / "site", f"shared-{name}", "1.0", f"shared/of/{name}/__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for line in ("import shared.of.other.deep", "from shared.of import other", "from shared.of.other import some"):
        (code / "mine.py").write_text(line)
        assert imported_packages(code).pinned == ("shared-other==1.0",), line


def test_of_packages_that_are_the_same_both_are_found(code, tmp_path, monkeypatch):
    for name in ("seen", "seen-headless"):
        install_as_if(tmp_path / "site", name, "1.0", "seen/__init__.py", "seen/dark.so")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for line in ("import seen", "from seen import dark", "from seen import what_is_made_on_import"):
        (code / "mine.py").write_text(line)
        assert imported_packages(code).pinned == ("seen==1.0", "seen-headless==1.0"), line


def test_distributions_are_those_that_importlib_finds():
    found = packages_module._distributions_of({"torch", "PIL", "sklearn", "yaml", "_pytest", "typing_extensions", "no"})
    known = metadata.packages_distributions()
    assert found == {name: sorted(set(known.get(name, ()))) for name in found}
    assert len([name for name in found if found[name]]) == 6
    assert packages_module._distributions_of(()) == {}


def test_what_the_library_needs_is_not_named():
    brought = packages_module._library_dependencies()
    assert {"xaibench", "torch", "numpy", "captum", "pot", "scipy"} <= brought
    assert "pytest" not in brought, "of an extra"
    assert "sympy" in brought, "which torch needs"
    assert "exceptiongroup" not in brought, "of older Pythons"


def test_what_is_here_needs_no_folder(installed, tmp_path):
    torch = metadata.version("torch").partition("+")[0]
    assert (
        provide_packages(["helping==1.0", f"torch=={torch}", "torch==0.1"], tmp_path / "packages", install=False) == ""
    )


def test_what_is_not_here_is_an_error_and_another_version_a_warning(installed, tmp_path):
    with pytest.raises(
        ResultError, match=r"^absent==1.0 is required by the method and not installed\. --install installs"
    ):
        provide_packages(["absent==1.0", "helping==2.0"], tmp_path / "packages", install=False)
    with pytest.warns(UserWarning, match="made with helping==2.0; installed is helping 1.0"):
        assert provide_packages(["helping==2.0"], tmp_path / "packages", install=False) == ""


def test_wheels_are_unpacked_into_the_folder_and_nothing_that_is_here(tmp_path):
    folder = provide_packages(["helping==2.0"], tmp_path / "packages", install=True)
    assert folder == str(tmp_path / "packages")
    assert "version = '2.0'" in (tmp_path / "packages/helping/__init__.py").read_text()
    assert (tmp_path / "packages/further/__init__.py").is_file(), "what it needs, too"
    assert "helping" not in {one.name for one in metadata.distributions()}


CANNOT = "cannot be installed together with the library: ERROR"


def test_what_cannot_be_installed_is_said(tmp_path):
    with pytest.raises(ResultError, match=rf"^clashing==1.0 {CANNOT}.*torch<1"):
        provide_packages(["clashing==1.0"], tmp_path / "packages", install=True)


@pytest.mark.parametrize("deep", [False, True], ids=["direct", "through-another"])
def test_a_requirement_by_address_is_refused_and_not_built(deep, index, tmp_path, monkeypatch):
    """pip builds it even where it shall take wheels only, and building runs the code of a stranger."""
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
    )
    (evil / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    own = tmp_path / "index"
    own.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(own))
    wheel(own, "inner", "1.0", needs=f"evil @ file://{evil}")
    wheel(own, "outer", "1.0", needs="inner")
    with pytest.raises(ResultError, match=r"inner-1.0-py3-none-any.whl requires evil from an address \(file://"):
        provide_packages(["outer==1.0" if deep else "inner==1.0"], tmp_path / "packages", install=True)
    assert not (tmp_path / "ran").exists()


def test_what_lies_in_the_present_folder_is_not_taken_for_pip(tmp_path, monkeypatch):
    (tmp_path / "here" / "pip").mkdir(parents=True)
    (tmp_path / "here" / "pip" / "__init__.py").write_text("")
    (tmp_path / "here" / "pip" / "__main__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ResultError, match=rf"^absent==1.0 {CANNOT}.*No matching distribution found for absent==1.0"):
        provide_packages(["absent==1.0"], tmp_path / "packages", install=True)
    assert not (tmp_path / "ran").exists()


def test_a_search_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(packages_module, "_PIP_TIMEOUT", 0.01)
    with pytest.raises(ResultError, match=r"helping==2.0 cannot be installed .* it took more than 0.01 s"):
        provide_packages(["helping==2.0"], tmp_path / "packages", install=True)


@needs_sandbox
def test_a_method_with_a_package_of_its_own_is_verified(code, installed, tiny, tmp_path, monkeypatch):
    shutil.rmtree(code / "__pycache__", ignore_errors=True)
    mine = tmp_path / "mine.py"
    mine.write_text(CODE.replace("import helper_of_mine\n", "").replace("from . import sibling\n", ""))
    settings = {"store": tmp_path / "store", "engine": "serial"}
    result = submit(
        f"{mine}:gxi",
        tiny,
        tmp_path / "results",
        info=SubmissionInfo(license="mit"),
        work=tmp_path / "work",
        **settings,
    )
    assert read_manifest(result).code.requires == ("helping==1.0",)
    assert check(result) == []
    unpacked = shutil.copytree(installed, tmp_path / "unpacked")

    def unpack(pins, folder):
        """In place of four calls of pip, which another test makes."""
        assert pins == ["helping==1.0"]
        return str(shutil.copytree(unpacked, folder))

    # As on a machine that has never heard of it.
    shutil.rmtree(installed)
    importlib.invalidate_caches()
    with pytest.raises(ResultError, match=r"gxi is refused: helping==1.0 is required by the method"):
        verify(result, work=tmp_path / "again", **settings)
    monkeypatch.setattr(packages_module, "_install_wheels", unpack)
    found = verify(result, work=tmp_path / "again", install=True, **settings)
    assert found.verdict == "bit-equal"


def test_a_result_names_packages_by_name_and_version_alone(result):
    manifest = read_note(result, MANIFEST)

    def require(name):
        changed = manifest.replace(b'"requires": []', f'"requires": ["{name}"]'.encode())
        assert changed != manifest
        return with_scores(result, notes={MANIFEST: changed})

    for bad in ("evil @ https://example.org/evil.whl", "--index-url=https://example.org", "evil", "../evil==1"):
        (fault,) = check(require(bad))
        assert f"entry 0 of code.requires is '{bad}'" in fault
    assert check(require("good-one==1.0.post1")) == []
