"""Rewrite the names in a sample file (the format is in sample_file.h), checksum included."""
import struct

HEADER, HASHED = 48, 40
MASK = (1 << 64) - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb & MASK
    return x ^ (x >> 31)


def hash_bytes(value, data):
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & MASK
    return mix((value + 0x9e3779b97f4a7c15 + len(data)) & MASK)


def rename_held_out(path, to, rename):
    """Copy the samples with rename(name) for every held-out name. Everything else stays as it is."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    side, count = struct.unpack("<IQ", data[12:24])
    at, records = HEADER, []
    for _ in range(count):
        held_out, length = data[at:at + 2]
        begin, end = at + 2 + length, at + 2 + length + side * side * 3
        name = data[at + 2:begin].decode()
        name = (rename(name) if held_out else name).encode()
        records.append(bytes([held_out, len(name)]) + name + data[begin:end])
        at = end
    data[24:32] = struct.pack("<Q", sum(map(len, records)))
    checksum = hash_bytes(0xcbf29ce484222325, data[:HASHED])
    for record in records:
        checksum = hash_bytes(checksum, record)
    data[HASHED:] = struct.pack("<Q", checksum) + b"".join(records)
    with open(to, "wb") as file:
        file.write(data)
