"""Pictures of noise, in the captioner's format, for examples/torch."""
import random
import struct

SIZE, COUNT = 8, 30


def write_samples(path):
    dice, body = random.Random(1), b""
    for i in range(COUNT):
        name = f"noise {i}".encode()
        body += struct.pack("BB", 0, len(name)) + name + dice.randbytes(SIZE * SIZE * 3)
    with open(path, "wb") as file:
        file.write(struct.pack("<8sIIqqqq", b"MIMOEMJI", 1, SIZE, COUNT, len(body), 0, 0) + body)
