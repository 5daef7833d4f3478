import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from s6mod.data.images import BadImageError, image_size, image_suffixes, read_image


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    colour = Image.new("RGB", (6, 4), (200, 200, 200)).convert(mode)
    colour.save(tmp_path / "x.png")
    pixels = read_image(tmp_path / "x.png", None, "x")
    assert (pixels.shape, pixels.dtype) == ((3, 4, 6), np.uint8)
    assert set(pixels.ravel()) <= {200, 255} | ({204} if mode == "P" else set())


@pytest.mark.parametrize("suffix", ["png", "bmp", "gif", "tiff", "ppm", "webp", "jpg"])
def test_formats_are_told_by_content(tmp_path, suffix):
    Image.new("RGB", (8, 8), (250, 0, 0)).save(tmp_path / f"x.{suffix}")
    (tmp_path / f"x.{suffix}").rename(tmp_path / "x")
    red, green, _ = read_image(tmp_path / "x", (4, 4), "x").reshape(3, -1).mean(1)
    assert red > 230
    assert green < 20
    assert f".{suffix}" in image_suffixes()


def test_sixteen_bits_keep_their_range(tmp_path):
    Image.fromarray(np.array([[0, 0x7F00, 0xFFFF]], np.uint16)).save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png", None, "x")[0].tolist() == [[0, 0x7F, 0xFF]]
    (tmp_path / "x.pgm").write_bytes(b"P5 3 1 65535\n" + np.array([0, 0x7F00, 0xFFFF], ">u2").tobytes())
    assert read_image(tmp_path / "x.pgm", None, "x")[0].tolist() == [[0, 0x7F, 0xFF]]
    Image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "x.tiff")
    with pytest.raises(BadImageError, match="32 bits per pixel"):
        read_image(tmp_path / "x.tiff", None, "x")


def test_resizing_is_antialiased(tmp_path):
    stripes = np.zeros((32, 32), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "x.png")
    small = read_image(tmp_path / "x.png", (8, 8), "x")
    assert small.shape == (3, 8, 8)
    assert abs(small[:, 2:-2, 2:-2].astype(int) - 127).max() < 20  # without antialiasing: 0 or 255


def test_photographs_stand_upright(tmp_path):
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4] = 255  # bright on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    upright = read_image(tmp_path / "x.png", None, "x")
    assert upright.shape == (3, 8, 4)
    assert upright[0, 0, 0] == 255
    assert upright[0, -1, 0] == 0


def png(width, height):
    """A PNG file whose header promises so many pixels, with none behind it."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_an_image_bomb_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "x.png").write_bytes(png(10_000, 8_000))
    assert image_size(tmp_path / "x.png") == (8_000, 10_000)
    with pytest.raises(BadImageError, match="at most 64,000,000 pixels in the bomb, got 10000x8000; shrink or remove"):
        read_image(tmp_path / "x.png", (8, 8), "the bomb")
    (tmp_path / "x.png").write_bytes(png(2**31 - 1, 2**31 - 1))
    with pytest.raises(BadImageError, match="DecompressionBombError"):
        read_image(tmp_path / "x.png", (8, 8), "the bomb")


def test_what_does_not_decode_is_named(tmp_path, draw):
    draw(tmp_path / "x.jpg", (64, 64))
    content = (tmp_path / "x.jpg").read_bytes()
    for damaged in (content[: len(content) // 2], b"not an image", b"", png(5, 5)):
        (tmp_path / "x.jpg").write_bytes(damaged)
        with pytest.raises(BadImageError, match="a readable image in this file, got one that does not decode"):
            read_image(tmp_path / "x.jpg", (8, 8), "this file")


def test_a_format_that_another_program_would_decode_is_refused(tmp_path):
    (tmp_path / "x.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n")
    assert ".eps" not in image_suffixes()
    with pytest.raises(BadImageError, match="does not decode"):
        read_image(tmp_path / "x.eps", None, "x")
