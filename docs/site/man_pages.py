#!/usr/bin/env python3
"""Man pages of the C interface: one for each name and each header.

    man_pages.py XML VERSION FOLDER    write them to FOLDER, from Doxygen's XML

A function's page has its prototype and its comment alone, a header's page what holds for all of it.
"""
import os
import re
import sys
import xml.etree.ElementTree as ET

INLINE = {"bold": "B", "emphasis": "I", "computeroutput": "B", "ref": "R"}


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def words(text):
    return escape(re.sub(r"\s+", " ", text or ""))


def lines_of(text):
    """No line of text may look like a request."""
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def inline(node):
    """The text of a node, with what stands in it in other fonts."""
    out = words(node.text)
    for child in node:
        font = INLINE.get(child.tag, "R")
        inner = inline(child)
        out += (inner if font == "R" else f"\\f{font}{inner}\\fR") + words(child.tail)
    return out


def listed(node, mark):
    for item in node.findall("listitem"):
        yield f".IP {mark} 4"
        yield from blocks(item, first=True)


def defined(node):
    """Terms and their texts, which stand side by side."""
    for term, item in zip(node.findall("varlistentry"), node.findall("listitem")):
        yield ".TP\n.B " + inline(term.find("term")).strip()
        yield from blocks(item, first=True)


def code(text):
    return ".PP\n.EX\n" + lines_of(escape(text.strip("\n"))) + "\n.EE"


def block(node):
    if node.tag == "verbatim":
        yield code(node.text)
    elif node.tag in ("itemizedlist", "orderedlist"):
        yield ".RS 2"
        yield from listed(node, "\\(bu" if node.tag == "itemizedlist" else "\\-")
        yield ".RE"
    elif node.tag == "variablelist":
        yield from defined(node)


def blocks(node, first=False):
    """The paragraphs of a description."""
    for para in node.findall("para"):
        text = words(para.text)
        for child in para:
            if child.tag in ("verbatim", "itemizedlist", "orderedlist", "variablelist"):
                if text.strip():
                    yield ("" if first else ".PP\n") + lines_of(text.strip())
                    first = False
                yield from block(child)
                text = words(child.tail)
            else:
                font = INLINE.get(child.tag, "R")
                text += (inline(child) if font == "R" else f"\\f{font}{inline(child)}\\fR") + words(child.tail)
        if text.strip():
            yield ("" if first else ".PP\n") + lines_of(text.strip())
        first = False


def description(node):
    """The paragraphs of a comment. Its first sentence stands apart in Doxygen's XML."""
    first, rest = (list(blocks(node.find(part))) for part in ("briefdescription", "detaileddescription"))
    if first and rest and re.match(r"\.PP\n[^.]", rest[0]):
        return [first[0] + "\n" + rest[0][len(".PP\n"):], *rest[1:]]
    return first + rest


def plain(node):
    return re.sub(r"\s+", " ", "".join(node.itertext())).strip() if node is not None else ""


def brief(node, other=""):
    return escape(plain(node.find("briefdescription")).rstrip(".") or other)


def prototype(function):
    """The declaration of a function, an argument a line where it is long."""
    result, name, arguments = plain(function.find("type")), function.findtext("name"), function.findtext("argsstring")
    text = f"{result}{'' if result.endswith('*') else ' '}{name}{arguments};"
    return text if len(text) <= 76 else text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")


def fields(struct):
    name = struct.findtext("compoundname")
    lines = [re.sub(r" *(\(?\*) ", r" \1", member.findtext("definition").replace(f"{name}::", ""))
             for member in struct.iter("memberdef")]
    return "\n".join([f"typedef struct {name} {{", *(f"    {line};" for line in lines), f"}} {name};"])


class Manual:
    def __init__(self, xml, version, folder):
        self.xml, self.version, self.folder = xml, version, os.path.join(folder, "man3")
        os.makedirs(self.folder, exist_ok=True)

    def read(self, refid):
        return ET.parse(os.path.join(self.xml, refid + ".xml")).getroot().find("compounddef")

    def write(self, name, parts):
        with open(os.path.join(self.folder, name + ".3"), "w", encoding="utf-8") as f:
            f.write("\n".join(parts) + "\n")

    def page(self, name, about, header, synopsis, text, see):
        """A page; `see` are further names."""
        include = f"#include <mimo/{header}>"
        self.write(name, [
            f'.TH {name} 3 "" "mimo\\-bridge {self.version}"', ".SH NAME", f"{escape(name)} \\- {about}",
            ".SH SYNOPSIS", code(f"{include}\n\n{synopsis}" if synopsis else include),
            ".SH DESCRIPTION", *text, ".SH SEE ALSO", ",\n".join(f".BR {escape(other)} (3)" for other in see)])

    def link(self, name, page):
        self.write(name, [f".so man3/{page}.3"])

    def member(self, member, header, page):
        kind, name = member.get("kind"), member.findtext("name")
        if kind == "function":
            others = sorted({ref.text.strip("()") for ref in member.find("detaileddescription").iter("ref")
                             if ref.text.startswith("mimo_") and "." not in ref.text} - {name})
            self.page(name, brief(member), header, prototype(member), description(member), [page, *others])
        elif kind == "enum":
            values = [f".TP\n.B {escape(value.findtext('name'))}\n{brief(value)}" for value in member.iter("enumvalue")]
            self.page(name, brief(member), header, f"typedef enum {name} {name};", description(member) + values, [page])
            for value in member.iter("enumvalue"):
                self.link(value.findtext("name"), name)
        elif name.lower().startswith("mimo_"):
            self.link(name, page)

    def struct(self, struct, header, page):
        name = struct.findtext("compoundname")
        texts = []
        for member in struct.iter("memberdef"):
            text = description(member)
            if text:
                texts += [f".TP\n.B {escape(member.findtext('name'))}", re.sub(r"^\.PP\n", "", text[0]), *text[1:]]
        about = brief(struct, f"a struct of <mimo/{header}>")
        self.page(name, about, header, fields(struct), description(struct) + texts, [page])

    def header(self, refid):
        file = self.read(refid)
        header = file.findtext("compoundname")
        page = "mimo_" + header
        members = [member for member in file.iter("memberdef") if not member.findtext("name").startswith("@")]
        structs = [self.read(inner.get("refid")) for inner in file.findall("innerclass")]
        functions = [f".TP\n.BR {escape(m.findtext('name'))} (3)\n{brief(m)}" for m in members
                     if m.get("kind") == "function"]
        names = [s.findtext("compoundname") for s in structs]
        text = description(file) + ([".SH FUNCTIONS", *functions] if functions else [])
        self.page(page, brief(file), header, "", text, [*names, "mimo_mimo.h"])
        for member in members:
            if member.findtext("name") not in names:
                self.member(member, header, page)
        for struct in structs:
            self.struct(struct, header, page)


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    manual = Manual(*sys.argv[1:])
    index = ET.parse(os.path.join(sys.argv[1], "index.xml")).getroot()
    for compound in index.findall("compound[@kind='file']"):
        manual.header(compound.get("refid"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
