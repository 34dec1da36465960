#!/usr/bin/env python3
"""The sources of the site: this project's pages, and pages of the C interface and of the Python package.

    site_pages.py ROOT XML FOLDER    write them to FOLDER; XML is Doxygen's

Pages lie in one folder, without `docs/`. Their links are rewritten: to a header, its page; to another file of the
repository, a page that shows it. A link to nothing is an error. Names of the C interface in backticks become links.
"""
import ast
import os
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as ET

# Pages with another name than that of their file, in lower case.
RENAMED = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "LICENSE": "license.md"}
# Pages in the order of the contents. Sphinx finds one that is in neither list.
GUIDE = ["tutorial", "concepts", "torch", "trainers", "gpu", "errors", "standstill", "speed", "correctness"]
INSIDE = ["routing", "architecture", "demo", "versions", "contributing", "changes", "license"]
LANGUAGES = {".c": "c", ".h": "c", ".cu": "c++", ".py": "python", ".sh": "bash"}
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"(?<![\[`])`([^`]+)`(?![\]`])")


def site_path(name):
    """Where a file of the repository is on the site."""
    if name in RENAMED:
        return RENAMED[name]
    if re.fullmatch(r"include/mimo/\w+\.h", name):
        return f"c/{pathlib.Path(name).stem}.md"
    if name.endswith(".md"):
        return pathlib.Path(name).name.lower()
    return pathlib.Path(name).name if name.endswith(".svg") else f"files/{name}.md"


def read_roles(xml):
    """Names of the C interface -> what Sphinx calls a link to them, from Doxygen's index."""
    roles = {}
    for compound in ET.parse(os.path.join(xml, "index.xml")).getroot():
        if compound.get("kind") == "struct":
            roles[compound.findtext("name")] = "type"
        for member in compound.findall("member") if compound.get("kind") == "file" else []:
            if member.get("kind") in ("function", "enum", "typedef"):
                roles[member.findtext("name")] = "func" if member.get("kind") == "function" else "type"
    return roles


def read_briefs(xml, header):
    """(function, first sentence of its comment) in the order of a header."""
    path = os.path.join(xml, header.replace("_", "__").replace(".", "_8") + ".xml")
    for member in ET.parse(path).getroot().iter("memberdef"):
        if member.get("kind") == "function":
            text = "".join(member.find("briefdescription").itertext()).strip()
            yield member.findtext("name"), text


def escape(text):
    """Text as a cell of a table in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def heading(text):
    return f"{text}\n{'=' * len(text)}\n\n"


class Site:
    def __init__(self, root, xml, folder):
        self.root, self.xml, self.folder = pathlib.Path(root), xml, pathlib.Path(folder)
        self.roles = read_roles(xml)
        self.shown = set()  # files that have a page because a link leads there
        self.wrong = []

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    # Pages of the repository.

    def link(self, page, match):
        text, target, anchor = match[1], match[2], match[3] or ""
        if not target or ":" in target:
            return match[0]
        name = os.path.normpath(os.path.join(os.path.dirname(page), target))
        if not (self.root / name).is_file():
            self.wrong.append(f"{page}: there is no file {name}")
            return match[0]
        place = site_path(name)
        if place.startswith("files/"):
            self.shown.add(name)
        return f"{text}({place}{anchor})"

    def code(self, match):
        header = re.fullmatch(r"<mimo/(\w+)\.h>", match[1])
        if header:
            return f"[{match[0]}](c/{header[1]}.md)"
        return f"{{c:{self.roles[match[1]]}}}{match[0]}" if match[1] in self.roles else match[0]

    def convert(self, page, text):
        out, fence = [], False
        for line in text.split("\n"):
            if line.startswith("```"):
                fence = not fence
            elif not fence and not line.startswith("    ") and not line.startswith("#"):
                line = CODE.sub(self.code, LINK.sub(lambda match: self.link(page, match), line))
            out.append(line)
        return "\n".join(out)

    def repository_pages(self):
        pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md",
                 *(f"docs/{path.name}" for path in sorted((self.root / "docs").glob("*.md")))]
        for page in pages:
            text = self.convert(page, (self.root / page).read_text(encoding="utf-8"))
            self.write(site_path(page), text + (self.contents() if page == "README.md" else ""))
        self.write("license.md", "# Licence\n\n```text\n" + (self.root / "LICENSE").read_text() + "```\n")
        for picture in sorted((self.root / "docs").glob("*.svg")):
            shutil.copy(picture, self.folder)

    def file_pages(self):
        for name in sorted(self.shown):
            text = (self.root / name).read_text(encoding="utf-8")
            language = LANGUAGES.get(pathlib.Path(name).suffix, "text")
            self.write(site_path(name), f"---\norphan: true\n---\n\n# {name}\n\n"
                                        f"~~~~{language}\n{text}~~~~\n")

    # Pages of the two interfaces.

    def headers(self):
        return sorted({path.name for path in (self.root / "include/mimo").glob("*.h")} - {"export.h"})

    def c_pages(self):
        lines = ["# C interface", "", "Every function, by header. A header's page begins with what holds for all of "
                 "it. What is [experimental](../versions.md#stable-and-experimental) says so.", ""]
        for header in self.headers():
            stem = header[:-2]
            self.write(f"c/{stem}.rst", heading(f"mimo/{header}") + f".. doxygenfile:: {header}\n")
            briefs = list(read_briefs(self.xml, header))
            lines += [f"## [mimo/{header}]({stem}.md)", ""]
            lines += ["| | |", "|---|---|", *(f"| {{c:func}}`{name}` | {escape(brief)} |"
                                              for name, brief in briefs), ""] if briefs else []
        self.write("c/index.md", "\n".join(lines))

    def python_modules(self):
        """(module, names that the package has from it), in the order of the package."""
        package = ast.parse((self.root / "python/mimo_bridge/__init__.py").read_text(encoding="utf-8"))
        for node in package.body:
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and node.module[0] != "_":
                yield node.module, [alias.name for alias in node.names]

    def python_pages(self):
        index = [heading("Python package"), ".. automodule:: mimo_bridge\n",
                 ":doc:`The page of the package </torch>` says who calls what.\n"]
        for module, names in self.python_modules():
            body = "\n".join(f".. auto{'class' if name[0].isupper() else 'function'}:: mimo_bridge.{name}\n"
                             + ("   :members:\n" if name[0].isupper() else "") for name in names)
            title = module.replace("_", " ").capitalize()
            self.write(f"python/{module}.rst", heading(title) + body)
            index += [f"- :doc:`{title} <{module}>`: " + ", ".join(f":py:obj:`~mimo_bridge.{name}`" for name in names)]
        for module, title in (("hf", "transformers"), ("hf_experts", "Experts of transformers"),
                              ("megatron", "Megatron-LM"), ("torchtitan", "torchtitan")):
            self.write(f"python/{module}.rst", heading(title) + f".. automodule:: mimo_bridge.{module}\n"
                                                                "   :members:\n")
            index += [f"- :doc:`{title} <{module}>`"]
        self.write("python/index.rst", "\n".join(index) + "\n")

    def contents(self):
        def tree(caption, pages):
            return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"

        modules = [module for module, _ in self.python_modules()] + ["hf", "hf_experts", "megatron",
                                                                  "torchtitan"]
        return (tree("Guide", GUIDE) + tree("Inside", INSIDE)
                + tree("C interface", ["c/index", *(f"c/{header[:-2]}" for header in self.headers())])
                + tree("Python package", ["python/index", *(f"python/{module}" for module in modules)]))


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    site = Site(*sys.argv[1:])
    site.c_pages()
    site.python_pages()
    site.repository_pages()
    site.file_pages()
    print("\n".join(site.wrong), end="\n" if site.wrong else "", file=sys.stderr)
    return 1 if site.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
