"""The fields that an audit and an analysis must have for the page."""

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

MEASUREMENT = fields({"value": maybe(real)}, {"low": maybe(real), "high": maybe(real)})
MODELS = dict.fromkeys(("original", "unlearned", "retrained"), maybe(MEASUREMENT))
ATTACK = fields(
    {"about": text, "unit": text, "n": count, "judged": flag}, {**MODELS, "p": maybe(number)}
)
CONTROL = fields({"expected": text, "got": text, "passed": flag})
ROC = alike(fields({"fpr": numbers, "tpr": numbers}), "fpr", "tpr")
AUDIT = fields(
    {"verdict": one_of(FORGOTTEN, NOT_FORGOTTEN, NO_VERDICT)},
    {
        "powered": maybe(flag),
        "tier": text,
        "reasons": many(text),
        "attacks": maybe(each(ATTACK)),
        "controls": maybe(each(CONTROL)),
        "roc": maybe(each(each(ROC))),
        "not_tested": many(text),
        "seconds": number,
        "date": text,
    },
)

CLOUD = alike(
    fields({"x": numbers, "y": numbers, "label": labels, "forget": flags}),
    *("x", "y", "label", "forget"),
)
DENSITIES = each(maybe(number), whole=True)
SHAP_IMAGE = fields({"maps": filled(each(table))}, {"title": text})
ANALYSIS = fields(
    {},
    {
        "tsne": maybe(each(each(CLOUD))),
        "density": maybe(each(each(DENSITIES))),
        "shap": maybe(fields({}, {"images": maybe(many(SHAP_IMAGE))})),
    },
)
