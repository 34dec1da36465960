"""The emoji of the captioner: small images and their names, from the file that it prepares.

    build/examples/captioner/captioner --image-size 16 --prepare emoji.samples

examples/captioner/data/sample_file.h describes the file.
"""
import struct

import torch

PATCH = 4  # pixels a side
END = 0  # a byte that no name has


class Emoji:
    """images f32 [count, P, 48] in -1 to 1, cut into P patches of 4x4 RGB; captions i64 [count, length],
    bytes of UTF-8, padded with END."""

    def __init__(self, path, length=24):
        with open(path, "rb") as file:
            data = file.read()
        magic, version, size, count = struct.unpack_from("<8sIIq", data)
        if magic != b"MIMOEMJI" or version != 1 or size % PATCH:
            raise SystemExit(f"{path}: no file of samples whose images are a multiple of {PATCH} wide")
        images, self.captions, at = [], torch.full((count, length), END), 48
        for i in range(count):
            name_length, at = data[at + 1], at + 2
            name = data[at:at + min(name_length, length - 1)]
            self.captions[i, :len(name)] = torch.tensor(list(name))
            at += name_length
            images.append(torch.frombuffer(bytearray(data[at:at + size * size * 3]), dtype=torch.uint8))
            at += size * size * 3
        self.side, self.pixels = size, torch.stack(images)  # u8 [count, size * size * 3]
        grid = self.pixels.reshape(count, size // PATCH, PATCH, size // PATCH, PATCH, 3)
        self.images = grid.transpose(2, 3).reshape(count, -1, PATCH * PATCH * 3) / 127.5 - 1
        self.patches = self.images.shape[1]

    def batches(self, size, seed=0):
        """Indices [size] of a batch, for ever: the same on every rank."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield torch.randint(len(self.images), (size,), generator=generator)
