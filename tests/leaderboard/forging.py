"""Results as a careful forger would write them: attacks on the check and on the site."""

import io
import json
import os
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from xaibench.leaderboard.repository import RESULT
from xaibench.leaderboard.scores import _PICTURE, read_picture


def with_text(folder, **changes):
    """The folder, with other entries in ``result.json``."""
    file = folder / RESULT
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def with_scores(folder, change=lambda table: table, picture=None):
    """The folder, with other rows and another picture in ``scores.parquet``."""
    file = folder / "scores.parquet"
    picture = read_picture(folder) if picture is None else picture
    table = change(pq.read_table(file)).replace_schema_metadata()
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_PICTURE: picture})
    return folder


def png(size):
    """A PNG file with a black picture."""
    content = io.BytesIO()
    Image.new("L", size).save(content, "PNG")
    return content.getvalue()


OTHER = "0" * 32


def rows(change):
    """Change the rows of a result as a data frame."""

    def attack(at):
        def changed(table):
            frame = change(table.to_pandas())
            arrays = [
                pa.array(frame[name].to_numpy(), field.type) for name, field in zip(frame, table.schema, strict=True)
            ]
            return pa.table(arrays, table.schema)  # NaN stays NaN

        with_scores(at, changed)

    return attack


def column(name, values):
    """Replace a column of a result by Arrow values, which may have another type or nulls."""

    def attack(at):
        with_scores(at, lambda t: t.set_column(t.column_names.index(name), name, values(t[name].combine_chunks())))

    return attack


def nulled(values):
    return pa.array([None, *values.to_pylist()[1:]], values.type)


def text(name, value):
    return lambda at: with_text(at, **{name: value})


def raw(content):
    return lambda at: (at / "result.json").write_bytes(content)


def entry(old, new):
    """Replace text in ``result.json``."""

    def attack(at):
        content = (at / "result.json").read_text()
        assert old in content
        (at / "result.json").write_text(content.replace(old, new))

    return attack


def facts(change):
    """Change the facts about the suite."""

    def attack(at):
        file = at.parent.parent / "suites" / at.name / "facts.json"
        words = json.loads(file.read_text())
        change(words)
        file.write_text(json.dumps(words))

    return attack


def linked(name):
    """Replace a file or folder by a link to a copy elsewhere."""

    def attack(at):
        path = {"result": at, "method": at.parent, "suites": at.parent.parent / "suites"}.get(name) or at / name
        elsewhere = path.parent / f"elsewhere-{path.name}" if path.parent != at else at.parent.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    return attack


def inflated(table):
    return pa.concat_tables([table] * 500)


def set_first(name, value):
    def change(frame):
        frame = frame.copy()
        frame.loc[frame.index[0], name] = value
        return frame

    return rows(change)


ATTACKS = {
    # rows (M1)
    "only the best samples": rows(lambda t: t.sort_values("value").groupby(["dataset", "model", "metric"]).tail(2)),
    "correct turned": rows(lambda t: t.assign(correct=~t["correct"])),
    "bad samples do not count": rows(lambda t: t.assign(scored=t["scored"] & (t["value"] > 0.5))),
    "negative samples": rows(lambda t: t.assign(sample=-1 - t["sample"])),
    "later samples": rows(lambda t: t.assign(sample=t["sample"] + 6)),
    "other trainings": rows(lambda t: t.assign(seed=t["seed"] + 7)),
    "other data seeds": rows(lambda t: t.assign(data_seed=t["data_seed"] + 1)),
    "another metric": rows(lambda t: t.assign(metric="iou")),
    "another data set": rows(lambda t: t.assign(dataset="xai-tris/xor-white-8x8")),
    "another subset": rows(lambda t: t.assign(subset="xor")),
    "another truth": rows(lambda t: t.assign(truth="use")),
    "another direction": rows(lambda t: t.assign(higher_is_better=False)),
    "another method": rows(lambda t: t.assign(explainer="saliency")),
    "duplicates": rows(lambda t: pd.concat([t, t[:1]])),
    "no rows": rows(lambda t: t[:0]),
    "beyond the range": set_first("value", 1.5),
    "infinite": set_first("value", np.inf),
    "undefined without a reason": set_first("value", np.nan),
    "a reason of a defined score": rows(lambda t: t.assign(value=0.5, reason="map is all zero")),
    "a reason with a control character": rows(lambda t: t.assign(reason="\x1b]0;x\x07", value=np.nan)),
    # Parquet (M3)
    "uint64": column("sample", lambda v: v.cast(pa.uint64())),
    "samples as text": column("sample", lambda v: v.cast(pa.string())),
    "null sample": column("sample", nulled),
    "null value": column("value", nulled),
    "null metric": column("metric", nulled),
    "null data set": column("dataset", nulled),
    "too many rows": lambda at: with_scores(at, inflated),
    "one long text": column("reason", lambda values: pa.array(["x" * (1 << 21)] * len(values))),
    "another column": lambda at: with_scores(at, lambda t: t.append_column("x", t["value"])),
    "a missing column": lambda at: with_scores(at, lambda t: t.drop_columns(["truth"])),
    "no Parquet": lambda at: (at / "scores.parquet").write_bytes(b"PAR1 and no more"),
    "cut": lambda at: (at / "scores.parquet").write_bytes((at / "scores.parquet").read_bytes()[:-9]),
    "a column that is not UTF-8": lambda at: (at / "scores.parquet").write_bytes(
        (at / "scores.parquet").read_bytes().replace(b"dataset", b"da\xc9aset")
    ),
    "a picture that is none": lambda at: with_scores(at, picture=b"GIF89a"),
    "a large picture": lambda at: with_scores(at, picture=png((9000, 9))),
    "a long picture": lambda at: with_scores(at, picture=bytes((1 << 20) + 1)),
    # result.json (M3, M8, low findings)
    "no JSON": raw(b"{"),
    "a list": raw(b"[]"),
    "not UTF-8": raw(b'{"schema": "\xff"}'),
    "deep": raw(b"[" * 200_000),
    "nested parameters": entry('"parameters": {}', '"parameters": {"a": ' + "[" * 900 + "]" * 900 + "}"),
    "long": raw(b" " * (2 << 20)),
    "NUL": entry('"summary": "', '"summary": "\\u0000'),
    "surrogate": entry('"summary": "', '"summary": "\\ud800'),
    "NaN": text("seconds", float("nan")),
    "infinity": text("seconds", float("inf")),
    "1e999": entry('"seconds": ', '"seconds": 1e999, "maps": '),
    "a huge integer": text("passes", 10**400),
    "a negative integer": text("passes", -1),
    "a truth value as a number": text("passes", True),
    "a date that is none": text("submitted", "9999-99-99"),
    "a date in other digits": text("submitted", "٢٠٢٦-٠١-٠١"),
    "a date with a line break": text("submitted", "2026-01-01\n"),
    "a right-to-left label": text("label", "Sali\u202eycne"),
    "a zero-width label": text("label", "Sali\u200bency"),
    "a label of two lines": text("label", "a\nb"),
    "an empty label": text("label", ""),
    "a script as address": text("homepage", "javascript:alert(1)"),
    "another field": text("labl", "x"),
    "another schema": text("schema", 5),
    "authors that are none": text("authors", [1]),
    "a missing field": lambda at: (at / "result.json").write_text('{"schema": 6}'),
    "a name of the maintainers": text("method", "verified.csv"),
    "the name suites": text("method", "suites"),
    "a name of Windows": text("method", "con"),
    "a path as name": text("method", "../x"),
    "another place": text("method", "other"),
    "an unknown suite": text("suite", "subprocess"),
    "another version": text("version", OTHER),
    # files
    "another file": lambda at: (at / "notes.md").write_text("x"),
    "code": lambda at: (at / "mine.py").write_text("x"),
    "bytecode": lambda at: (at / "__pycache__").mkdir(),
    "no scores": lambda at: (at / "scores.parquet").unlink(),
    "no description": lambda at: (at / "result.json").unlink(),
    "a pipe": lambda at: (at / "result.json").unlink() or os.mkfifo(at / "result.json"),
    "empty scores": lambda at: (at / "scores.parquet").write_bytes(b""),
    "a folder": lambda at: (at / "scores.parquet").unlink() or (at / "scores.parquet").mkdir(),
    "a link to itself": lambda at: (at / "result.json").unlink() or (at / "result.json").symlink_to("result.json"),
    "linked result": linked("result"),
    "linked method": linked("method"),
    "linked scores": linked("scores.parquet"),
    "linked description": linked("result.json"),
    # facts
    "linked facts": linked("suites"),
    "no facts": lambda at: shutil.rmtree(at.parent.parent / "suites"),
    "facts with infinite side": facts(lambda w: w["pictures"].update(side=float("inf"))),
    "facts with infinite sample": facts(lambda w: w["pictures"].update(samples=[[float("inf")]])),
    "facts with infinite accuracy": facts(lambda w: w["accuracy"].append("lin,white,x,0.9,1,inf,,1,1,,,6")),
    "facts without networks": facts(lambda w: w.pop("networks")),
    "facts with another training": facts(lambda w: w["networks"].append("xai-tris/lin-white-8x8,mlp,0,9,111111")),
    "facts with another network": facts(lambda w: w["networks"].append("xai-tris/xor-white-8x8,mlp,0,0,111111")),
    "facts with fewer samples": facts(
        lambda w: w.update(networks=[w["networks"][0], *(line[:-2] for line in w["networks"][1:])])
    ),
    "facts that turn a metric": facts(lambda w: w["parts"]["metrics"]["topk_precision"].update(higher_is_better=False)),
    "facts with malformed groups": facts(lambda w: w.update(samples=["dataset,data_seed,sample,group", "a,b,0,1"])),
    "facts of another kind": facts(lambda w: w.update(parts=[])),
    "samples that are no picture": lambda at: (at.parent.parent / "suites" / at.name / "samples.png").write_bytes(
        b"GIF"
    ),
}
#: Attacks on the files of a result that leave other files alone.
OF_ONE_RESULT = [name for name in ATTACKS if not name.startswith(("facts", "no facts", "linked", "samples that"))]
