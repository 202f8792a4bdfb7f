"""The docs site: examples run and print what is shown, and the API pages have every public name.

``python`` fences of a page are executed in one namespace; a ``text`` fence behind one is its output. A fence with a
``title="file"`` is written to that file. ``console`` fences have ``$ xaibench ...`` and its output, run by the
installed command in its own process (a test has the folder on its path, a reader's shell has not). ``xaibench``
commands of ``sh`` fences must parse. A fence with another library as title is run if that is installed; its last
assignment must equal the assignment to that name in the ``xaibench`` fence next to it. In shown output ``...`` matches
anything, indentation counts, and numbers may differ by 0.002.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import yaml
from installed import installed
from typer.main import get_command

import xaibench

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Pages that continue another page, in its folder.
CONTINUED = {"tutorials/benchmark-a-new-explainer": ["tutorials/read-the-report"]}
#: Pages whose code needs data that tests do not have.
WITH_DATA = {"datasets", "hub", "saliency-bench"}
NUMBER = re.compile(r"-?\d+\.\d+")


class Fence(NamedTuple):
    """A block of code: its language, the file that it shows, its text, its line."""

    language: str
    title: str
    text: str
    line: int


def fences(page):
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```(\w+)(.*)\n((?:.*\n)*?)\1```$", text, re.M):
        title = re.search(r'title="([^"]*)"', found[3])
        body = re.sub(rf"^{found[1]}", "", found[4], flags=re.M)
        yield Fence(found[2], title[1] if title else "", body, text.count("\n", 0, found.start()) + 1)


def pages():
    names = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))
    with_code = [name for name in names if "```python" in (DOCS / f"{name}.md").read_text(encoding="utf-8")]
    later = {page for pages in CONTINUED.values() for page in pages}
    return [[name, *CONTINUED.get(name, [])] for name in with_code if name not in WITH_DATA | later]


def agree(shown, printed):
    """Return whether the printed output is the shown one: ``...`` for anything, numbers within 0.002."""
    shown, printed = ("\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in (shown, printed))
    pattern = r"(-?\d+\.\d+)".join(
        r"[\s\S]*?".join(re.escape(part) for part in piece.split("...")) for piece in NUMBER.split(shown)
    )
    found = re.fullmatch(pattern, printed)
    pairs = zip(NUMBER.findall(shown), found.groups(), strict=True) if found else ()
    return found is not None and all(abs(float(a) - float(b)) <= 0.002 + 1e-9 for a, b in pairs)


@pytest.fixture(scope="module")
def xaibench_command(tmp_path_factory):
    """The installed command, as a reader of the pages has it: started once, when the first page asks for it."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(installed(tmp_path_factory.mktemp("said"))))


@pytest.mark.parametrize("names", pages(), ids=lambda names: names[0].rpartition("/")[2])
def test_pages_do_what_they_show(names, tmp_path, monkeypatch, xaibench_command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    known = set(sys.modules)
    try:
        for name in names:
            execute(DOCS / f"{name}.md", xaibench_command)
    finally:
        for name in set(sys.modules) - known:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


#: Titles of fences on other libraries, and what must be there to run them. The released XAI-TRIS code is no package.
PEERS = {
    "Captum": "captum",
    "Quantus": "quantus",
    "pytorch-grad-cam": "pytorch_grad_cam",
    "xaibenchmark": "xaibenchmark",
}
PEERS["pytorch-grad-cam and xaibench"] = "pytorch_grad_cam"


def execute(page, command):
    names, printed, theirs = {"__name__": "__main__"}, None, None
    for fence in fences(page):
        if fence.title.endswith((".py", ".toml")):
            Path(fence.title).write_text(fence.text, encoding="utf-8")
            importlib.invalidate_caches()
        elif fence.language == "python" and runs(fence):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(fence.text, f"{page}:{fence.line}", "exec"), names)
            printed = out.getvalue()
            theirs = compared(fence, names, theirs)
        elif fence.language == "text" and printed is not None:
            assert agree(fence.text, printed), f"{page}:{fence.line} prints\n{printed}"
        elif fence.language == "console":
            commands(page, fence, command())
        elif fence.language == "sh":
            understood(fence)


def runs(fence):
    """Whether what the fence asks for is there: packages of others that are not installed, and data, are not."""
    package = PEERS.get(fence.title)
    return fence.title != "xaibench, with data" and (package is None or importlib.util.find_spec(package) is not None)


def compared(fence, names, theirs):
    """What another library's fence has assigned last; the fence of ours behind it must give the same, if it says so."""
    last = re.findall(r"^(\w+) = ", fence.text, re.M)
    if fence.title in PEERS:
        return (last[-1], names[last[-1]]) if last else None
    if fence.title == "xaibench" and theirs is not None and last[-1] == theirs[0]:
        np.testing.assert_allclose(plain(names[last[-1]]), plain(theirs[1]), atol=1e-6)
    return None


def plain(values):
    return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values, dtype=np.float64)


@functools.cache
def command_line():
    return get_command(importlib.import_module("xaibench.cli").app)


def commands(page, fence, xaibench_command):
    """Run the commands of a console fence, and compare what they print."""
    for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", fence.text, re.M):
        name, *arguments = shlex.split(line)
        assert name == "xaibench", f"{page}:{fence.line}: {line}"
        ended = xaibench_command(*arguments, folder=Path.cwd(), XAIBENCH_CACHE=os.environ["XAIBENCH_CACHE"])
        assert ended.exit_code == 0, f"{page}:{fence.line}: {line}\n{ended.stderr}"
        assert not shown or agree(shown, ended.stdout), f"{page}:{fence.line}: {line} prints\n{ended.stdout}"


def understood(fence):
    """The commands of a shell fence name commands and options that there are."""
    for line in re.findall(r"^xaibench (.*)$", fence.text, re.M):
        name, *arguments = shlex.split(line, comments=True)
        command = command_line().commands[name]
        while hasattr(command, "commands"):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments)


PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]


def test_commands_on_all_pages_exist():
    """Also those of indented blocks, and of pages without Python."""
    for page in PAGES:
        blocks = "".join(fence.text for fence in fences(page) if fence.language in ("sh", "console"))
        text = (blocks + page.read_text(encoding="utf-8")).replace("\\\n", " ")
        commands = re.findall(r"^(?:\$ |pip install \. && | {4})(xaibench \w.*)$", text, re.M)
        commands += re.findall(r"^(xaibench \w.*)$", blocks.replace("\\\n", " "), re.M)
        understood(Fence("sh", "", "\n".join(command for command in commands if "..." not in command), 0))


def test_agreement_of_outputs_can_fail():
    assert agree("a 0.501 ... b\nc", "a 0.500 and\nmuch b  \nc\n")
    assert not agree("a 0.55", "a 0.50")
    assert not agree("a 0.505", "a 0.502")
    assert not agree("a 0.5", "b 0.5")
    assert not agree("one", "one\ntwo")
    assert not agree("  one", "one")


@pytest.fixture(scope="module")
def generate():
    """Import a module of docs/generate by name."""
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / "generate")
        yield importlib.import_module
    for name in set(sys.modules) - known:
        if "generate" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def api(generate):
    return generate("api")


def test_generated_files_are_up_to_date(generate):
    spec = importlib.util.spec_from_file_location("generate_all", DOCS / "generate" / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stale = [path.name for path, text in module.derived().items() if module.is_stale(path, text)]
    assert stale == [], "run python docs/generate"
    assert not module.explainer_pictures.missing(), "run python docs/generate"


def test_every_part_has_a_page(api_pages, parts):
    pages = parts.pages()
    assert {f"metrics/{name}" for name in xaibench.metrics.METRICS} <= set(pages)
    assert sum(name.startswith("explainers/") for name in pages) == len(xaibench.explainers.EXPLAINERS)
    for name, text in pages.items():
        assert re.search(r"^## Limits\n\n\S", text, re.MULTILINE), name
        assert not re.search(r"\]\((?!\.\./|https?:|#)", text), f"{name}: links must start from its folder"


#: Packages that are not part of the public Python interface: the commands have a page of their own, and what authors
#: of parts need from the foundations is in xaibench.types.
NOT_IN_PYTHON = {"cli", "registry", "core", "kernels", "network", "runfolder", "tensors"}


def public_packages():
    found = [module.name for module in pkgutil.iter_modules(xaibench.__path__) if module.ispkg]
    return [f"xaibench.{name}" for name in found if name not in NOT_IN_PYTHON]


def public_paths():
    for package in [*public_packages(), "xaibench.metrics.torchmetrics"]:
        for name in importlib.import_module(package).__all__:
            yield f"{package}.{name}"


@pytest.fixture(scope="module")
def parts(generate):
    return generate("part_pages")


@pytest.fixture(scope="module")
def api_pages(api):
    return api.pages()


def test_every_public_name_is_on_an_api_page(api, api_pages, parts):
    pages = [*api_pages.values(), *parts.pages().values()]
    shown = [name for page in pages for name in re.findall(r"^::: (\S+)", page, re.M)]
    assert len(shown) == len(set(shown))  # a name on two pages would have two addresses
    shown = set(shown)
    defined = {api._defined(path) for path in shown if path.count(".") > 1} | shown
    classes = re.findall(r"^\| `(\w+)` \|", api_pages["torchmetrics"], re.M)
    defined |= {f"xaibench.metrics.torchmetrics.{name}" for name in classes}
    assert not [path for path in public_paths() if path not in shown and api._defined(path) not in defined]
    index = api_pages["index"]
    assert not [name for name in xaibench.__all__ if f"`xb.{name}`" not in index]


def test_no_page_maker_hides_an_installed_package():
    # Each puts its folder first on sys.path: with a datasets.py there, `import datasets` found the wrong one.
    makers = {path.stem for path in (DOCS / "generate").glob("*.py")}
    assert makers.isdisjoint(importlib.metadata.packages_distributions())


def test_every_command_is_on_its_page(api_pages):
    page = api_pages["cli"]
    for name, command in command_line().commands.items():
        assert f"## `xaibench {name}`" in page
        assert all(f"`{one.opts[-1]}`" in page or f"`{one.name.upper()}`" in page for one in command.params)


def test_every_page_of_the_menu_is_there_and_every_page_is_in_it(api_pages, parts):
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    menu += list(parts.navigation().values())  # added by docs/generate/site.py

    def leaves(entry):
        if isinstance(entry, str):
            return [entry]
        return [leaf for part in (entry if isinstance(entry, list) else entry.values()) for leaf in leaves(part)]

    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | {f"api/{name}.md" for name in api_pages}
    written |= {f"{name}.md" for name in parts.pages()} | {"quickstart.md"}  # site.py
    assert sorted(leaves(menu)) == sorted(written)


def test_each_command_has_examples_that_the_program_understands(api_pages, generate):
    commands, page = generate("commands"), api_pages["cli"]
    known = command_line().commands
    assert sorted(commands.EXAMPLES) == sorted(known)
    for name, text in commands.EXAMPLES.items():
        assert f"```sh{text}```" in page
        assert text.count(f"xaibench {name} ") == len(text.strip().splitlines())
        understood(Fence("sh", "", text, 0))
