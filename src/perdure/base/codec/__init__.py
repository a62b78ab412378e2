"""The codec: values to bytes and back, exactly.

Owns: what can be stored, its bytes, and which classes are known. Does not own: where bytes go, checksums, compression.
Read first: `encoding.py`, then `decoding.py`.
"""

from __future__ import annotations

from perdure.base.codec.conversion import convert
from perdure.base.codec.decoding import decode
from perdure.base.codec.discovery import register, register_from
from perdure.base.codec.display import show
from perdure.base.codec.encoding import encode, encode_call

__all__ = ["convert", "decode", "encode", "encode_call", "register", "register_from", "show"]
