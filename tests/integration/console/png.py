"""Makes a screenshot small: at most 256 colors, as an indexed PNG."""

from __future__ import annotations

import base64
import struct
import zlib

from playwright.sync_api import Page

_STEP = 17
"""Channels are rounded to multiples of it: 16 levels of 256, which keep gray text readable."""

_MOST_COLORS = 256

_INDEXED = """async ([png, step, most]) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const pixels = canvas.getImageData(0, 0, image.width, image.height).data;
  const colors = new Map();
  const indexes = new Uint8Array(pixels.length / 4);
  const near = (value) => Math.round(value / step) * step;
  for (let i = 0; i < indexes.length; i++) {
    const color = (near(pixels[4 * i]) << 16) | (near(pixels[4 * i + 1]) << 8) | near(pixels[4 * i + 2]);
    if (!colors.has(color) && colors.size < most) colors.set(color, colors.size);
    indexes[i] = colors.get(color) ?? 0;
  }
  let text = "";
  for (let i = 0; i < indexes.length; i += 8192) text += String.fromCharCode(...indexes.subarray(i, i + 8192));
  return [image.width, image.height, [...colors.keys()], btoa(text)];
}"""


def smaller(page: Page, png: bytes) -> bytes:
    """Return a screenshot with fewer colors and a third of the bytes; the page decodes it."""
    arguments = [base64.b64encode(png).decode(), _STEP, _MOST_COLORS]
    width, height, colors, encoded = page.evaluate(_INDEXED, arguments)
    indexes = base64.b64decode(encoded)
    rows = b"".join(b"\0" + indexes[y * width : (y + 1) * width] for y in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + _chunk(b"PLTE", b"".join(color.to_bytes(3, "big") for color in colors))
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
