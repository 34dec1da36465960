#!/usr/bin/env python3
"""Doxygen's input filter: the comments of a public header are plain text, whose layout counts.

    plain_comments.py HEADER    print the header as Doxygen shall read it

A comment at the beginning of a line in column 0 that documents no declaration belongs to the file, one
behind code to that code, and one above a field to the field. Indented lines that are no list stay as they
are. No character has a meaning for Doxygen, except lists and names in backticks.
"""
import re
import sys

COMMENT = re.compile(r"^(?P<before>[^\n]*?)/\*(?P<doc>\*?)(?P<text>.*?)\*/", re.S | re.M)
ITEM = re.compile(r"\s*(?:-|\d+\.) ")


def escape(line):
    parts = re.sub(r"([\\@#<>%&$])", r"\\\1", line).split("`")
    line = "".join(f"<tt>{part}</tt>" if i % 2 else part for i, part in enumerate(parts))
    return re.sub(r"^(\s*)\d+\. ", r"\1-# ", line)


def paragraphs(lines):
    """Lines of a comment, with those that stay as they are between @verbatim and @endverbatim."""
    out, block = [], []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
            continue
        table = block and block[0].startswith("  ") and not ITEM.match(block[0])
        plain = not table and any(ITEM.match(text) for text in block)
        fixed = False
        for text in block:
            indented = not plain and text.startswith("  ")
            if indented != fixed:
                out.append("@verbatim" if indented else "@endverbatim")
            fixed = indented
            out.append(text if indented else escape(text))
        out += ["@endverbatim", ""] if fixed else [""]
        block = []
    return out


def body(text):
    first, *rest = text.split("\n")
    rest = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in rest]
    base = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    if not first.strip():
        base = 0
    return paragraphs([first.strip(), *(line[base:] for line in rest)])


def convert(match):
    before, doc, text = match["before"], match["doc"], match["text"]
    if text.startswith(" ---") or text.strip().startswith("Only where MIMO_EXPERIMENTAL"):
        return ""
    lines = body(text)
    kind = "/**"
    if before.strip():
        kind = "/**<"
    elif not before and not doc:
        lines = ["@file", *lines]
    return before + kind + " " + "\n".join(lines).strip() + "\n*/"


with open(sys.argv[1], encoding="utf-8") as header:
    sys.stdout.write(COMMENT.sub(convert, header.read()))
