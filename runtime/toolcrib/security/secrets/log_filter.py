"""Log records without secrets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import ref

if TYPE_CHECKING:
    from toolcrib.security.secrets.redactor import Masks

_LOGGERS: Final = ("toolcrib", "toolcrib.http", "httpcore.http11")
"""Loggers whose records may hold a secret: ours (a filter sees nothing of the loggers below), and the one that
writes down the headers of answers."""


class _Filter(logging.Filter):
    """Masks message, traceback and stack of every record, by the secrets of every vault that is in use."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: tuple[ref[Masks], ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record in place; it always passes."""
        known = [masks for each in self.masks if (masks := each()) is not None]
        if known:
            _mask(record, known)
        return True


def _mask(record: logging.LogRecord, known: list[Masks]) -> None:
    message = _message(record)
    masked = _hidden(message, known)
    if masked != message:
        record.msg, record.args = masked, None
    if record.exc_info and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        masked = _hidden(trace, known)
        if masked != trace:  # handlers write the text; some would write the exception anew
            record.exc_text, record.exc_info = masked, None
    elif record.exc_text:
        record.exc_text = _hidden(record.exc_text, known)
    if record.stack_info:
        record.stack_info = _hidden(record.stack_info, known)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- what is logged may be anything; a handler would print all of it
        return f"{record.msg} {record.args!r}"


def _hidden(text: str, known: list[Masks]) -> str:
    for masks in known:
        text = masks.hide_in_text(text)
    return text


_FILTER: Final = _Filter()


def mask_logs_of(masks: Masks) -> None:
    """Mask what is logged by these secrets too, for as long as they are in use."""
    _FILTER.masks = (*(each for each in _FILTER.masks if each() not in (None, masks)), ref(masks))
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
