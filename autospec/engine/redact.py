"""What a server says, made fit to be shown: short, without secrets and without prompts."""

from __future__ import annotations

import json
import re
from typing import Final

from autospec.engine.payloads import shorten

__all__ = ["SECRET_KEYS", "error_text", "mask_flags"]

#: Keys of the server's settings whose values must not be kept or shown.
SECRET_KEYS: Final = frozenset(
    {
        "admin_api_key",
        "api_key",
        "ssl_keyfile_password",
        "watermark_config",
        "watermark_key",
        "watermark_key_b",
    }
)
_SECRET_FLAG: Final = re.compile(r"(--(?:admin-)?api-key|--ssl-keyfile-password)([ =])\S+")
_VALIDATION: Final = re.compile(r"'msg': (['\"])(.*?)\1, '(?:input|ctx)'")


def error_text(payload: bytes) -> str:
    """One short line saying what an error answer complains about."""
    try:
        data = json.loads(payload)
    except ValueError:
        return shorten(payload.decode("utf-8", "replace"))
    while isinstance(data, dict):
        data = next((data[key] for key in ("error", "message", "detail") if key in data), None)
    # A validation error repeats what was sent, which may be a prompt; only its reasons are kept.
    reasons = dict.fromkeys(found[2] for found in _VALIDATION.finditer(str(data)))
    return shorten("; ".join(reasons) if reasons else data)


def mask_flags(text: str) -> str:
    """Put ``***`` for the values of secret flags in a command line."""
    return _SECRET_FLAG.sub(r"\1\2***", text)
