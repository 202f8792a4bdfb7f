import tomllib

import pytest
from refusals import refused

from xaibench.runner import SuiteError, load_suite
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed, without_missing, write_suite
from xaibench.runner.suites.parsing import parse_suite


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    return load_suite("saliency-bench")[0]


def sets(suite):
    return [name for cell in suite.cells for name in cell.datasets]


def test_all_eight_sets_are_in_the_suite(bench):
    assert sets(bench) == ["gender", "scene", "glasses", "sixray", "lidc", "tumor", "pet", "pascal", "pascal"]
    assert narrowed(bench) == bench


def test_sets_are_chosen_by_name_alias_or_label(bench):
    assert sets(narrowed(bench, datasets=["cats_dogs", "lidc"])) == ["lidc", "pet"]
    assert [cell.label for cell in narrowed(bench, datasets=["pascal"]).cells] == ["object-1", "object-2"]
    assert [cell.label for cell in narrowed(bench, datasets=["object-2"]).cells] == ["object-2"]


@pytest.mark.parametrize(
    ("choices", "parameter"),
    [
        ({"datasets": ["dogs"]}, "datasets"),
        ({"datasets": []}, "datasets"),
        ({"models": "vgg16"}, "models"),
        ({"explainers": []}, "explainers"),
        ({"finetune": "tail"}, "finetune"),
        ({"protocol": "own"}, "protocol"),
        ({"sign": "own"}, "sign"),
        *(({"samples": samples}, "samples") for samples in (0, "some", 2.5, True)),
        *(({"size": size}, "size") for size in (0, 2.5, True)),
    ],
)
def test_a_wrong_choice_is_named(bench, choices, parameter):
    assert refused(SuiteError, "", lambda: narrowed(bench, **choices)).parameter == parameter


def test_models_training_and_protocol_are_exchanged(bench):
    other = narrowed(bench, models=["vgg16", "resnet50"], finetune="all", protocol="published")
    assert {cell.models for cell in other.cells} == {("vgg16", "resnet50")}
    assert other.training.method == "all"
    assert other.explaining.protocol == "published"
    assert narrowed(bench, sign="signed").explaining.sign == "signed"
    refused(SuiteError, "trains no pretrained network", lambda: narrowed(load_suite("xai-tris-8x8")[0], finetune="all"))


def test_explainers_and_metrics_are_exchanged_beside_the_controls():
    suite = load_suite("xai-tris-8x8")[0]
    wanted = {"explainers": ["mine:f", "LIME", "rise"], "metrics": ["emd_perf", "IoU"], "samples": 50}
    other = narrowed(suite, **wanted)
    assert [part.name for part in other.explainers] == [
        "mine:f",
        "lime",
        "rise",
        "sobel",
        "laplace",
        "uniform",
        "input",
        "prior",
    ]
    assert [dict(part.parameters) for part in other.explainers[:3]] == [{}, {"n_samples": 50, "alpha": 0.01}, {}]
    assert [part.name for part in other.metrics] == ["emd_perf", "iou"]
    assert other.explaining.samples == 50
    assert parse_suite(tomllib.loads(write_suite(other))) == other


def test_the_suite_as_run_is_written_down(bench):
    other = narrowed(bench, datasets=["pet", "object-1"], models=["vgg16"], finetune="all", protocol="published")
    assert parse_suite(tomllib.loads(write_suite(other))) == other
    other = narrowed(bench, explainers=["gradcam"], metrics=["iou", "insertion"], samples="all")
    read = parse_suite(tomllib.loads(write_suite(other)))
    assert read == other


def test_sets_that_are_not_there_are_left_out_with_advice(bench, tmp_path):
    from generators.pet import write

    refused(SuiteError, ("none of its data sets is there", "prepare lidc", "--download"), without_missing, bench)
    write(tmp_path)
    kept, missing = without_missing(bench)
    assert sets(kept) == ["pet"]
    assert list(missing) == ["gender", "scene", "glasses", "sixray", "lidc", "tumor", "pascal"]
    assert "--download" in missing["pascal"]
    generated = load_suite("xai-tris-8x8")[0]
    assert without_missing(generated) == (generated, {})


def test_sets_on_photographs_are_left_out_where_none_are_given(monkeypatch):
    paper = load_suite("xai-tris-64x64-paper")[0]
    monkeypatch.delenv("XAIBENCH_IMAGES", raising=False)
    kept, missing = without_missing(paper)
    assert set(sets(paper)) - set(sets(kept)) == set(missing)
    assert [name.split("-")[2] for name in missing] == ["imagenet"] * 4
    monkeypatch.setenv("XAIBENCH_IMAGES", "/photographs")
    assert without_missing(paper) == (paper, {})


def keys_of(plan):
    """Keys of all results; of scores, those of each explainer and metric."""
    jobs = {job.key for job in plan.jobs if job.stage != "score"}
    return jobs | {score.key for cell in plan.cells for _, score in cell.scores}


def parts_of(suite, model):
    return {part.name for cell in suite.cells if model in cell.models for part in suite.explainers_of(cell)}


@pytest.mark.parametrize("name", ["xai-tris-8x8", "xai-tris-64x64"])
def test_optional_cells_are_run_on_request_alone(name):
    suite, _ = load_suite(name)
    published = narrowed(suite)
    assert published.cells == suite.cells
    assert published.explainers == suite.explainers
    assert {model for cell in published.cells for model in cell.models} == {"llr", "mlp", "cnn"}
    keys = keys_of(make_plan(published))
    every = narrowed(suite, models=["llr", "mlp", "cnn", "vit"])
    with_it = make_plan(every)
    assert keys < keys_of(with_it), "what the others do is what they do without it"
    assert parts_of(every, "cnn") == {part.name for part in suite.explainers}
    assert parts_of(every, "vit") == parts_of(every, "cnn") | {part.name for part in suite.optional.explainers}
    assert "legrad" in parts_of(every, "vit")
    alone = narrowed(suite, models=["ViT"])
    assert {cell.models for cell in alone.cells} == {("vit",)}
    assert sorted(sets(alone)) == sorted(set(sets(suite)))
    for other in (every, alone):
        assert parse_suite(tomllib.loads(write_suite(other))) == other


def test_a_model_of_the_suite_is_run_as_its_cells_have_it_and_another_instead_of_them():
    suite = load_suite("xai-tris-8x8")[0]
    cells = narrowed(suite, models=["cnn"]).cells
    rigid = [cell for cell in cells if "rigid" in cell.datasets[0]]
    assert [dict(cell.training) for cell in rigid] == [{}, {}], "once, with its own learning rate"
    assert sets(narrowed(suite, models=["llr"])) == ["xai-tris/lin-white-8x8", "xai-tris/lin-corr-8x8"]
    every = narrowed(suite, models=["llr", "mlp", "cnn", "vit"])
    assert [sorted(cell.models) for cell in every.cells if cell.datasets == ("xai-tris/rigid-corr-8x8",)] == [
        ["mlp"],
        ["cnn"],
        ["vit"],
    ]
    other = narrowed(suite, models=["mine:net", "vit"])
    placed = sorted(dataset for cell in other.cells if "mine:net" in cell.models for dataset in cell.datasets)
    assert placed == sorted(set(sets(suite))), "once for each data set"
    llr = narrowed(suite, models=["llr"], datasets=["xai-tris/xor-corr-8x8"]).cells
    assert [(cell.datasets, cell.models) for cell in llr] == [(("xai-tris/xor-corr-8x8",), ("llr",))]


def test_explainers_of_optional_cells_can_be_chosen():
    suite = load_suite("xai-tris-8x8")[0]
    both = narrowed(suite, models=["cnn", "vit"], explainers=["legrad", "saliency", "mine:f"])
    controls = {"sobel", "laplace", "uniform", "input", "prior"}
    assert parts_of(both, "cnn") == {"saliency", "mine:f"} | controls
    assert parts_of(both, "vit") == {"legrad", "saliency", "mine:f"} | controls


def test_an_error_in_an_optional_cell_names_its_table(tmp_path):
    text = load_suite("xai-tris-8x8")[1].replace("legrad = {}", "legrad = { resize = 3 }")
    (tmp_path / "mine.toml").write_text(text)
    suite = load_suite(tmp_path / "mine.toml")[0]
    make_plan(narrowed(suite))
    error = refused(SuiteError, "", make_plan, narrowed(suite, models=["vit"]))
    assert (error.table, error.parameter) == ("[optional.explainers.legrad]", "resize")


def test_options_of_the_users_folders_are_parameters_of_the_data_sets(bench):
    changed = narrowed(bench, negatives="normal", window="40,400")
    assert dict(changed.data.parameters) == {**bench.data.parameters, "negatives": "normal", "window": "40,400"}
    assert tomllib.loads(write_suite(changed))["data"]["parameters"] == dict(changed.data.parameters)
