#!/usr/bin/env python3
"""Rows for torch_layouts.c: every structure of the headers with its fields.

    layout_rows.py HEADERS... > torch_layout_rows.h
"""
import pathlib
import re
import sys

STRUCT = re.compile(r"typedef struct (mimo_\w+) \{(.*?)\} \1;", re.S)
# "const char *name", "int64_t begin", "int (*interrupted)(void *context)", "char letters[4]"
FIELD = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[[^\]]*\])*$")


def fields_of(body):
    for declaration in body.split(";"):
        parts = [declaration] if "(*" in declaration else declaration.split(",")
        for part in parts:
            match = FIELD.search(part.strip())
            if match:
                yield match[1] or match[2]


def main(headers):
    for header in map(pathlib.Path, headers):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        for name, body in STRUCT.findall(text):
            print(f"STRUCT({name});")
            for field in fields_of(body):
                print(f"FIELD({name}, {field});")


if __name__ == "__main__":
    main(sys.argv[1:])
