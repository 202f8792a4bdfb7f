"""What every error message of the package keeps to, read from the source.

A message is a sentence: it begins with a capital letter or with a name (an argument, a file, an entry of a suite), and
ends with a full stop. A *reason*, which its module puts into the sentence of another error, is neither capitalized nor
ended.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

import xaibench

ROOT = Path(xaibench.__file__).parent

#: The modules that raise reasons, and catch them.
REASONS = {
    "data/photographs/pascal_voc.py",
    "data/scans/lidc_index.py",
    "data/scans/sixray_luggage.py",
    "data/photographs/human_masks.py",
    "data/scans/ct_reading.py",
    "data/scans/medical_images.py",
    "data/scans/nifti_volumes.py",
    "data/disk/file_readers.py",
    "data/volume_folder.py",
    "benchmarks/xai_tris/photo_backgrounds.py",
    "benchmarks/xai_tris/released_pickles.py",
    "data/exchange/parquet.py",
}
#: What no user reads: abstract methods and exit codes; and errors with an underscore, which stay within a module.
SILENT = {"NotImplementedError", "typer.Exit"}


@functools.cache
def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def names():
    """What a message may begin with: the names of arguments and fields."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return arguments | fields | {"xb"}  # and calls, such as the one that downloads a set


def literal(node):
    """The text of a string, ``{}`` where something is put in; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def faults(tree, names, reasons=False):
    """``(line, what is wrong)`` of each message in ``tree``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        called = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        if called in SILENT or called.startswith("_") or not re.search(r"Error$|BadParameter$", called):
            continue
        texts = [text for part in getattr(node.exc, "args", []) if (text := literal(part)) is not None]
        if not texts:
            if not getattr(node.exc, "args", []):
                yield node.lineno, f"{called} says nothing"
            continue
        message = texts[0]
        word = re.match(r"[a-z]\w*", message)
        ended = message.endswith((".", "?", "{}"))
        if reasons and word and (not ended or message.endswith("{}")):
            continue
        # A name of code has an underscore, a dot or a digit, or stands before "=", ":" or "(".
        named = word and (word[0] in names or re.match(r"[a-z]\w*([=:(]|\.\w)|[a-z]+[_0-9]", message))
        if word and not named:
            yield node.lineno, f"begins with {word[0]!r}: a capital letter, or a name"
        if not ended:
            yield node.lineno, f"ends with {message[-12:]!r}: a full stop"


def test_messages_are_sentences():
    found = []
    for path, tree in trees().items():
        place = path.relative_to(ROOT).as_posix()
        found += [f"{place}:{line} {wrong}" for line, wrong in faults(tree, names(), place in REASONS)]
    assert found == []


def test_reasons_are_those_of_modules_there_are():
    assert {path.relative_to(ROOT).as_posix() for path in trees()} >= REASONS


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("raise ValueError", 1),
        ("raise MyError('there is no such file.')", 1),
        ("raise ValueError('its pixels are cut off')", 2),
        ("raise ValueError(f'images: got {x}.')", 0),
        ("raise ValueError(f'workers={n}: expected 1 or more.')", 0),
        ("raise NotImplementedError", 0),
    ],
)
def test_a_fault_is_seen(code, count):
    assert len(list(faults(ast.parse(code), {"images"}))) == count
    assert not count or "pixels" not in code or list(faults(ast.parse(code), set(), reasons=True)) == []
