"""The docstrings of the Python package are plain text, whose layout counts. Sphinx reads them as reST.

A block of lines "name  what it is", aligned, becomes a list of definitions; an indented block, or one below a table,
stays as it is; lines that begin with "- " are a list. No character has a meaning, except names in backticks.
"""
import re

ITEM = re.compile(r"(\S.*?) {2,}(\S.*)$")


def escape(line):
    parts = re.sub(r"([\\*_|])", r"\\\1", line).split("`")
    return "".join(f"``{part.replace(chr(92), '')}``" if i % 2 and part else part for i, part in enumerate(parts))


def column(block):
    """Where the second column of a block of definitions begins; 0 where it is none."""
    first = ITEM.match(block[0])
    if not first or block[0][0] in " -":
        return 0
    at = next((len(line) - len(line.lstrip()) for line in block if line.startswith(" ")), first.start(2))
    return at if all(line.startswith(" " * at) or ITEM.match(line) or line[at - 1:at] == " " for line in block) else 0


def definitions(block, at):
    out = []
    for line in block:
        if line.startswith(" "):
            out.append(f"    {escape(line.strip())}")
            continue
        wide = ITEM.match(line)  # a term that is as wide as the column has one space behind it
        term, text = (wide[1], wide[2]) if wide else (line[:at].strip(), line[at:])
        out += ["", f"``{term}``", f"    {escape(text)}"]
    return out + [""]


def literal(block):
    return ["::", "", *(f"    {line}" for line in block), ""]


def convert(block):
    if block[0].startswith("  "):
        return literal(block)
    if column(block):
        return definitions(block, column(block))
    out = []
    for line in block:
        if line.startswith("- ") and out and not out[-1].startswith(("- ", " ")):
            out.append("")
        out.append(escape(line))
    return out + [""]


def to_rst(lines):
    """Replace the lines of a docstring."""
    blocks, block = [], []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            blocks.append(block)
            block = []
    lines[:] = [line for block in blocks for line in convert(block)]
