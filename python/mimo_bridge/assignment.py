"""Which encoder lane works on which image, so that no lane waits long and few rows move."""
from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from . import _c
from .errors import ShapeError

__all__ = ["BalanceReport", "balance", "balance_report", "image_cost"]

Numbers = Sequence[int] | torch.Tensor


class BalanceReport(NamedTuple):
    """What an assignment is worth: <mimo/balance.h> has the fields."""

    cost: int
    mean: int
    bound: int
    longest_home: int
    longest: int
    rows: int
    rows_moved: int
    rows_over: int
    empty_lanes: int


def image_cost(patches: Iterable[int], hidden: int) -> list[int]:
    """What a block of a vision transformer costs for an image of p patches: p * (p + 6 * hidden)."""
    return [p * (p + 6 * hidden) for p in patches]


def balance(cost: Numbers, lanes: int, *, rows: Numbers | None = None, home: Numbers | None = None,
            max_rows: int = 0, slack_permille: int = 10, in_order: bool = False) -> list[int]:
    """The lane of each item. Local and pure: ranks that pass the same numbers get the same lanes.

    cost      of each item, whole numbers of any unit (image_cost)
    lanes     their number: dp of the encoder
    rows      of each item: what moves where it leaves its home; None: cost
    home      the lane that has loaded each item, -1: none has; None: items have no homes
    max_rows  the most rows that a lane has memory for; 0: no limit
    slack_permille  how much longer than the bound the longest lane may be where fewer rows move then
    in_order  lanes take items that follow each other

    <mimo/balance.h> says what is promised. Errors: ArgumentError, ShapeError, SizeOverflowError.
    """
    desc = _desc(cost, lanes, rows, home, max_rows, slack_permille, in_order)
    lane = (ctypes.c_int64 * max(desc.items, 1))()
    _c.lib.mimo_balance(lane, ctypes.byref(desc))
    return list(lane[:desc.items])


def balance_report(lane: Numbers, cost: Numbers, lanes: int, *, rows: Numbers | None = None,
                   home: Numbers | None = None, max_rows: int = 0) -> BalanceReport:
    """Sum up any assignment of items. Errors as those of balance()."""
    desc = _desc(cost, lanes, rows, home, max_rows, 10, False)
    report = _c.sized(_c.mimo_balance_report)
    _c.lib.mimo_balance_report_of(ctypes.byref(report), ctypes.byref(desc),
                                  _numbers("lane", lane, desc.items))
    return BalanceReport(*(getattr(report, field) for field in BalanceReport._fields))


def _desc(cost: Numbers, lanes: int, rows: Numbers | None, home: Numbers | None, max_rows: int,
          slack_permille: int, in_order: bool) -> _c.mimo_balance_desc:
    items = len(cost)
    desc = _c.sized(_c.mimo_balance_desc, items=items, in_order=in_order,
                    cost=_numbers("cost", cost, items),
                    lanes=_c.whole("balance: lanes", lanes, 1),
                    max_rows=_c.whole("balance: max_rows", max_rows),
                    slack_permille=_c.whole("balance: slack_permille", slack_permille))
    if rows is not None:
        desc.rows = _numbers("rows", rows, items)
    if home is not None:
        desc.home = _numbers("home", home, items)
    return desc


def _numbers(what: str, values: Numbers, items: int) -> Any:
    if len(values) != items:
        raise ShapeError(f"balance: {len(values)} numbers of {what} for {items} items")
    listed = values.tolist() if isinstance(values, torch.Tensor) else values
    return _c.numbers(ctypes.c_int64, f"balance: {what}", listed)
