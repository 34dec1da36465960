"""Numbers for objects, because custom ops take no objects.

The table holds its objects weakly. Who needs one later (a backward pass) holds it itself.
"""
from __future__ import annotations

import itertools
import weakref
from typing import Any

from .errors import StateError

_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def add(thing: object) -> int:
    """Give an object a number, which is never used again in this process."""
    number = next(_numbers)
    _objects[number] = thing
    return number


def get(number: int) -> Any:
    """The object of a number. StateError where it is gone."""
    try:
        return _objects[number]
    except KeyError:
        raise StateError("the bridge, dispatch, route, partition or alignment of this call was closed or "
                         "freed") from None
