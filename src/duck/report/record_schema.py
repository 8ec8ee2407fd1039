"""What the files beside a run must hold for a page to be made of them."""

from duck.audits.verdict import FORGOTTEN, NO_VERDICT, NOT_FORGOTTEN
from duck.schema import (
    alike,
    count,
    each,
    fields,
    filled,
    flag,
    flags,
    labels,
    many,
    maybe,
    number,
    numbers,
    one_of,
    real,
    table,
    text,
)

READING = fields({"value": maybe(real)}, {"low": maybe(real), "high": maybe(real)})
MODELS = dict.fromkeys(("original", "unlearned", "retrained"), maybe(READING))
ATTACK = fields(
    {"about": text, "unit": text, "n": count, "judged": flag}, {**MODELS, "p": maybe(number)}
)
ROC = alike(fields({"fpr": numbers, "tpr": numbers}), "fpr", "tpr")
AUDIT = fields(
    {"verdict": one_of(FORGOTTEN, NOT_FORGOTTEN, NO_VERDICT)},
    {
        "powered": maybe(flag), "tier": text, "reasons": many(text), "attacks": maybe(each(ATTACK)),
        "controls": maybe(each(fields({"expected": text, "got": text, "passed": flag}))), "roc": maybe(each(each(ROC))),
        "not_tested": many(text), "seconds": number, "date": text,
    },
)  # fmt: skip

CLOUD = alike(
    fields({"x": numbers, "y": numbers, "label": labels, "forget": flags}),
    "x",
    "y",
    "label",
    "forget",
)
MAPS = fields({"maps": filled(each(table))}, {"title": text})
ANALYSIS = fields(
    {},
    {
        "tsne": maybe(each(each(CLOUD))), "density": maybe(each(each(each(maybe(number), whole=True)))),
        "shap": maybe(fields({}, {"images": maybe(many(MAPS))})),
    },
)  # fmt: skip
