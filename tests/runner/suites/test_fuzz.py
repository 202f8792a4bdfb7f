"""Any damage of a suite ends in a plan, or in an error that names the place in the TOML file."""

import copy
import datetime
import math
import random
import tomllib

import pytest
import tomli_w
from file_damage import KINDS, places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xaibench.registry.table import UnknownNameError
from xaibench.runner.plan.checks import MAX_JOBS
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed, without_missing
from xaibench.runner.suites.parsing import SUITES, load_suite
from xaibench.runner.suites.schema import MODEL, SuiteError

SMALL = """
name = "small"
title = "Small"
citation = "Nobody."

[data]
seeds = [0, 1]
parameters = { n_samples = 100, alpha = 0.2 }

[training]
seeds = 2
epochs = 1
lr = 0.004
batch_size = 64
stack = 2
loss = "logits"
method = "fit"
precision = "float32"

[explaining]
samples = 4
samples_per_job = 2
trainings = "best"
output = "default"
seed = 0
scored = "correct"
protocol = "area"
sign = "magnitude"
precision = "own"
pictures = true
min_accuracy = 80.0

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "mlp"]
data = { alpha = 0.3 }
training = { lr = 0.1, seeds = [0] }
explainers = ["saliency", "lime-50"]
metrics = ["iou"]

[[cells]]
datasets = ["xai-tris/xor-corr-8x8"]
models = ["cnn"]
label = "xor"
build = { channels = [4, 8] }

[explainers]
saliency = {}
lime-50 = { use = "lime", n_samples = 50 }
integrated_gradients = { n_steps = 8, baseline = "zeros" }
rise = { n_masks = 10 }
smoothgrad = { n_samples = 3 }
uniform = {}

[metrics]
iou = {}
topk_precision = { k = 3 }
road = { percentages = [10, 50] }

[[optional.cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["vit"]

[optional.explainers]
legrad = {}

[quick]
training = { epochs = 1 }
"""

#: Suites as text. Those that are large are drawn in their quick form.
TEXTS = [SMALL, *(load_suite(name, quick=True)[1] for name in SUITES)]

WORDS = """x a.b:c math:pi json:loads : a: hf://-x/y hf://../.. folder: folder:/nowhere parquet: volumes:x
photographs:$NOWHERE whitened: whitened:zca: certified:x $MODEL saliancy xai-tris/lin-white-9x9 disconnected:
disconnected:cnn blind:x all ../.."""
NAMES = st.sampled_from([*WORDS.split(), "", " ", "\u202e", "\x00", "x" * 5000])
WHOLE = [0, -1, 1, 2, 3, 100, 10**4, 10**7, 2**31, 2**63 - 1, 2**64, 10**400, -(10**30)]
NUMBERS = st.sampled_from([*WHOLE, 0.0, -0.0, 0.5, -0.5, 1.5, 1e-320, 1e308, math.inf, -math.inf, math.nan])
SCALARS = NAMES | NUMBERS | st.booleans() | st.text(max_size=5) | st.just(datetime.date(2026, 1, 1))


def nested(depth):
    return [nested(depth - 1)] if depth else []


VALUES = st.recursive(
    SCALARS, lambda of: st.lists(of, max_size=3) | st.dictionaries(NAMES, of, max_size=2), max_leaves=4
) | st.builds(nested, st.sampled_from([30, 200]))


def damage(draw, tables):
    """Change one value, name or entry of parsed TOML."""
    path = draw(st.sampled_from(list(places(tables))))
    owner = tables
    for step in path[:-1]:
        owner = owner[step]
    last, kind = (
        path[-1],
        draw(st.sampled_from(["value", "value", "other", "delete", "rename", "add", "double", "nest"])),
    )
    if kind == "value":
        owner[last] = draw(VALUES)
    elif kind == "other":  # a value from elsewhere in the suite
        value = tables
        for step in draw(st.sampled_from(list(places(tables)))):
            value = value[step]
        owner[last] = copy.deepcopy(value)
    elif kind == "delete":
        del owner[last]
    elif kind == "nest":
        owner[last] = draw(st.sampled_from([[owner[last]], {"x": owner[last]}]))
    elif isinstance(owner, list):
        owner.append(copy.deepcopy(owner[last]) if kind == "double" else draw(VALUES))
    elif kind == "rename":
        owner[draw(NAMES | st.just(str(last)[:-1]) | st.just(f"{last}s"))] = owner.pop(last)
    else:
        owner[draw(NAMES)] = draw(VALUES) if kind == "add" else copy.deepcopy(owner[last])


BROKEN = [
    b"\xef\xbb\xbf", b"\x00", b"\xff", b"\r", b"x =\n", b"= 1\n", b"[data]\n", b"[[data]]\n", b"'''", b'"""',
    b'"\\ud800"', b"x = " + b"[" * 900 + b"]" * 900 + b"\n", b"x = " + b"[" * 100_000 + b"\n",
    b"x = " + b"{a=" * 900 + b"1" + b"}" * 900, b"a" + b".a" * 900 + b" = 1\n", b"x = " + b"9" * 10_000 + b"\n",
    b"x = 2026-99-99\n", b"x = 0x\n", b"[" + b"a." * 2000 + b"a]\n",
]  # fmt: skip


@st.composite
def files(draw):
    """The bytes of a suite with one to three damages, of its values or of its text."""
    text = draw(st.sampled_from(TEXTS))
    if draw(st.integers(0, 3)):
        tables = tomllib.loads(text)
        for _ in range(draw(st.integers(1, 3))):
            if list(places(tables)):
                damage(draw, tables)
        return tomli_w.dumps(tables).encode("utf-8", "surrogatepass")
    content = text.encode()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.sampled_from(BROKEN) | st.binary(max_size=4)) + content[at:]
    kind, rng = draw(st.sampled_from([None, *KINDS])), random.Random(draw(st.integers(0, 2**32)))
    return kind(rng, content) if kind else content


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("suites") / "mine.toml"


def planned(file, quick):
    suite = load_suite(file, quick=quick)[0]
    is_open = any(MODEL in model for cell in suite.cells for model in cell.models)
    return make_plan(without_missing(narrowed(suite, models=["resnet18"] if is_open else None))[0])


@given(content=files(), quick=st.sampled_from([False, False, False, True]))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_suite_is_planned_or_refused_with_its_place(file, content, quick):
    file.write_bytes(content)
    try:
        plan = planned(file, quick)
    except (SuiteError, UnknownNameError) as error:
        text = str(error)
        if "none of its data sets is there" not in text:
            assert text.startswith((str(file), f"Cannot read the suite {file}")), text
        assert len(text) < 20_000
        return
    assert plan.cells
    assert len(plan.jobs) <= 3 * MAX_JOBS
    assert [job.key for job in planned(file, quick).jobs] == [job.key for job in plan.jobs]
