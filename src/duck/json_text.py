"""The one JSON writer: strict JSON, which every parser can read."""

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON text; NaN and infinite numbers become null.

    options     as for `json.dumps`
    """
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
